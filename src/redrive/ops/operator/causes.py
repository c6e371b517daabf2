"""Causes of failure: list, show, annotate, retry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from redrive.errors import InvalidInput
from redrive.kernel.failure_filter import EVERY_FAILURE, FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.task import check_seconds
from redrive.kernel.wording import EXAMPLES, counted, percent, seconds_of
from redrive.ops import causes, views
from redrive.ops.access import Role
from redrive.ops.causes import Breakdown, Cause, CausePage
from redrive.ops.operations.lifecycle import AS_EVER, How
from redrive.ops.operator.declared import Given, Reason, action, look, view_of
from redrive.ops.operator.operations import BegunView, OperationService
from redrive.ops.operator.session import Service
from redrive.ops.views import BreakdownView, CauseView, Seen, bars

Fingerprint = Annotated[str, Given("As the list gives it; its beginning will do.", metavar="FINGERPRINT")]
Text = Annotated[str, Given("What is known about it.", label="note", metavar="TEXT", positional=True)]
Owner = Annotated[str | None, Given("Who looks after it.", metavar="NAME")]
Span = Annotated[str, Given("For how long: 30m, 8h, 7d; 0 ends it.", metavar="SPAN", positional=True)]
Forgotten = Annotated[bool, Given("Also what was forgotten or purged.")]
STANDS = "cause {done.fingerprint} is {done.status}"


MOST_NAMED = 5  # values of each part of a breakdown


@dataclass(slots=True, frozen=True)
class CauseWithParts(CauseView):
    breakdown: Seen[BreakdownView]

    @property
    def text(self) -> str:
        """All of it for people, in lines."""
        kinds = ", ".join(f"{kind} ({n})" for kind, n in self.kinds.items())
        lines = [
            f"{self.code}  {self.status}  {self.fingerprint}",
            " ".join((self.message or "").split()),
            f"{counted(self.failed)} failed by it now ({percent(self.share)} of all)",
            f"{counted(self.count, 'failure')} seen, first {_time(self.first_seen)}, last {_time(self.last_seen)}",
            f"kinds: {kinds}",
            f"reason: {self.reason}, type: {self.failure_type}",
            f"sample: redrive show {self.sample_task}",
            *_parts(self.breakdown),
        ]
        if any(self.trend):
            lines.append(f"last 24 hours: |{bars(self.trend)}| at most {max(self.trend)} an hour")
        lines += [f"{name}: {said}" for name, said in (("note", self.note), ("owner", self.owner)) if said]
        if self.status == "resolved":
            lines.append(f"resolved by {self.resolved_by}")
        if self.status == "muted" and self.muted_until is not None:
            lines.append(f"muted until {_time(self.muted_until)}")
        if self.failed:
            lines.append(f"once it is mended: redrive causes retry {self.fingerprint} --canary 10 --wait")
        return "\n".join(lines)


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _parts(found: BreakdownView) -> Iterator[str]:
    for name in causes.BROKEN_DOWN_BY:
        if counts := getattr(found, name):
            named = ", ".join(f"{value} ({n:,})" for value, n in [*counts.items()][:MOST_NAMED])
            more = f" and {len(counts) - MOST_NAMED:,} more" if len(counts) > MOST_NAMED else ""
            yield f"by {name}: {named}{more}{f' (of the last {found.tasks:,})' if found.at_least else ''}"


class CauseService(Service):
    """Failures by cause: list, show, note, mute, resolve, retry."""

    async def list(
        self,
        which: FailureFilter = EVERY_FAILURE,
        *,
        limit: int = 50,
        status: str | None = None,
        order: str | None = None,
        before: str | None = None,
    ) -> CausePage:
        """Returns causes by which tasks that match are failed now, those by which most are first, with how many they
        are and their share of all. ``order``: failed, count (failures ever), first, last or trend. ``before`` is the
        ``next_before`` of the page before. Causes by which nothing is failed have the status ``quiet``."""
        self._session.may(Role.VIEWER)
        meant = which if which == EVERY_FAILURE else await self._session.known(which)
        return await causes.list_causes(self._store, meant, limit=limit, status=status, order=order, before=before)

    @look("GET /api/failure-groups/{fingerprint}", said="{done.text}")
    async def show(self, fingerprint: Fingerprint) -> CauseWithParts:
        """One cause: how often, since when, where, a sample, and what was said about it; with what the tasks that are
        failed by it now have in common."""
        found = await self.get(fingerprint)
        parts = await self.break_down(found.row.fingerprint)
        return CauseWithParts(**views.cause(found, self._session.sight), breakdown=view_of(BreakdownView, parts))

    async def get(self, fingerprint: str) -> Cause:
        """Returns one, also by the beginning of its fingerprint, if only one begins so."""
        self._session.may(Role.VIEWER)
        return await causes.show(self._store, fingerprint)

    async def break_down(self, fingerprint: str) -> Breakdown:
        """Returns what the tasks that are failed by a cause now have in common: peers (for operators), scopes, groups
        and builds, of the last thousand of them."""
        self._session.may(Role.VIEWER)
        found = await causes.break_down(self._store, fingerprint)
        return found if self._session.sight.whole else replace(found, peer={})

    @action("POST /api/failure-groups/{fingerprint}/note", said=STANDS)
    async def note(self, fingerprint: Fingerprint, text: Text, owner: Owner = None, reason: Reason = None) -> CauseView:
        """Write down what is known, and who looks after it."""
        return await self._say(fingerprint, reason, note=text, **({} if owner is None else {"owner": owner}))

    @action("POST /api/failure-groups/{fingerprint}/mute", said=STANDS)
    async def mute(self, fingerprint: Fingerprint, span: Span, reason: Reason = None) -> CauseView:
        """Known, and not to be shown as open for a while."""
        seconds = _seconds(span)
        until = await self._store.now() + timedelta(seconds=seconds) if seconds else None
        return await self._say(fingerprint, reason, muted_until=until)

    @action("POST /api/failure-groups/{fingerprint}/resolve", said=STANDS)
    async def resolve(self, fingerprint: Fingerprint, reason: Reason = None) -> CauseView:
        """The cause is fixed. It opens again by itself when the failure comes back."""
        return await self._say(fingerprint, reason, resolved=True)

    @action("POST /api/failure-groups/{fingerprint}/reopen", said=STANDS)
    async def reopen(self, fingerprint: Fingerprint, reason: Reason = None) -> CauseView:
        """It was not fixed after all."""
        return await self._say(fingerprint, reason, resolved=False)

    @action(
        "POST /api/failure-groups/{fingerprint}/retry",
        said="operation {done.operation.id} has begun: retry of {done.matched}",
        page="/operations/{done.operation.id}",
        status=202,
    )
    async def retry(
        self, fingerprint: Fingerprint, how: How = AS_EVER, forgotten: Forgotten = False, reason: Reason = None
    ) -> BegunView:
        """Retry everything that failed by this cause and is failed or cancelled now, as a bulk operation."""
        operations = OperationService(self._session)
        which = FailureFilter(fingerprint=fingerprint, forgotten=forgotten or None)
        return await operations.begun(await operations.begin(Action.RETRY, which, reason=reason, how=how))

    async def _say(self, fingerprint: str, reason: str | None, **said: Any) -> CauseView:
        return CauseView(**views.cause(await self.annotate(fingerprint, reason, **said), self._session.sight))

    async def annotate(self, fingerprint: str, reason: str | None = None, **said: Any) -> Cause:
        """Sets ``note``, ``owner``, ``muted_until`` (a datetime) or ``resolved`` (a bool); None takes one back."""
        who = self._session.may(Role.OPERATOR)
        return await causes.annotate(self._store, fingerprint, actor=who, reason=reason, **said)


def _seconds(span: str) -> float:
    if span == "0":
        return 0.0
    found = seconds_of(span)
    if found is None:
        raise InvalidInput(f"{span!r} is no span of time", hint=f"write {EXAMPLES}")
    return check_seconds(found, "the span")
