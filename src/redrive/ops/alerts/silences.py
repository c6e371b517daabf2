"""Silences: an operator says that nobody is to be told of a rule until a time, and why."""

from __future__ import annotations

from datetime import datetime, timedelta

from redrive.errors import InvalidInput, NotFound
from redrive.kernel.alerts.book import Silence, read_silence, silence_document
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.kernel.task import check_moment, check_text
from redrive.ops.alerts.look import COLLECTION

LONGEST = timedelta(days=30)
MOST_SILENCES = 200
STATE = "silence"


async def silence(store: Store, rule: str, queue: str, until: datetime, *, actor: str, reason: str | None) -> Silence:
    """Silences a rule, in a queue or everywhere; one that is silenced already gets this end and this reason."""
    now, why = await store.now(), check_text(reason, "reason")
    if why is None:
        raise InvalidInput("a silence needs a reason", hint="others want to know why nobody is told")
    if check_moment(until, "until", now) <= now:
        raise InvalidInput(f"{until.isoformat()} is in the past", hint="say until when, later than now")
    if until - now > LONGEST:
        raise InvalidInput(f"a silence ends within {LONGEST.days} days", hint="for good: off in [alerts.thresholds]")
    new = Silence(rule, queue, until, actor, why, now)
    before = await _record(store, new.key)
    if before is None and len(await store.records(COLLECTION, states=(STATE,), limit=MOST_SILENCES)) >= MOST_SILENCES:
        raise InvalidInput(f"there are {MOST_SILENCES} silences already", hint="redrive alerts unsilence RULE")
    body = silence_document(new)
    row = Audit(
        *(actor, "ALERT_SILENCE", why),
        before=None if before is None else {"until": before.body.get("until")},
        after={"until": until.isoformat()},
        target=f"alert:{new.key}",
    )
    version = 0 if before is None else before.version
    put = Put(COLLECTION, f"silence:{new.key}", body, version, STATE, (until - now).total_seconds())
    await store.apply(Commit(puts=[put], audits=[row]))
    return new


async def unsilence(store: Store, rule: str, queue: str, *, actor: str, reason: str | None) -> None:
    """Ends a silence now."""
    now, key = await store.now(), f"{rule}:{queue}" if queue else rule
    record = await _record(store, key)
    known = None if record is None else read_silence(record.body)
    if record is None or known is None or known.until <= now:
        raise NotFound(f"nobody has silenced {key}", hint="redrive alerts lists what is silenced")
    row = Audit(
        *(actor, "ALERT_UNSILENCE", check_text(reason, "reason")),
        before={"until": record.body.get("until")},
        target=f"alert:{key}",
    )
    body = {**record.body, "until": now.isoformat()}
    put = Put(COLLECTION, record.id, body, record.version, STATE, 0.0)
    await store.apply(Commit(puts=[put], audits=[row]))


async def _record(store: Store, key: str) -> Record | None:
    return await store.record(COLLECTION, f"silence:{key}")
