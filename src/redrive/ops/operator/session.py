"""What the services of an operator share: the store, the application's kinds, the policy, and who asks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar

from redrive.errors import ConfigError, NotAllowed
from redrive.handlers.registry import Registry
from redrive.kernel.alerts.thresholds import Limits
from redrive.kernel.approved import Request
from redrive.kernel.backoff import Backoff
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.feature import Belongs, Feature
from redrive.kernel.ports.store import Store
from redrive.kernel.reads import Query
from redrive.kernel.records import Record
from redrive.kernel.task import Task
from redrive.ops import approvals, causes, inspect
from redrive.ops.access import Caller, Role
from redrive.ops.actions import check_actor
from redrive.ops.allowance import Act, PlannedAction, Rule, T, alone, judge
from redrive.ops.belonging import belonging, check_members, members_of
from redrive.ops.shell import NO_SHELL, Shell, for_connection
from redrive.ops.views import Sight
from redrive.settings import Settings, Triage

W = TypeVar("W", FailureFilter, Query)


@dataclass(slots=True, frozen=True)
class Policy:
    """Rules of operating. ``approvals_above`` None: nothing has to be approved. What one person did within
    ``approvals_window`` counts."""

    approvals_above: int | None = 1000
    approvals_window: timedelta = timedelta(hours=1)
    public_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    audit_archive: str | None = None
    backoff: Backoff = field(default_factory=Backoff)
    triage: Mapping[str, Triage] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)  # of alerts
    settings: Settings | None = None  # those that this was made of

    @property
    def alone(self) -> Rule:
        """What one operator may do without a second one."""
        return Rule(self.approvals_above, self.approvals_window)

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        return cls(
            approvals_above=settings.approved_above,
            approvals_window=timedelta(minutes=settings.approvals_window_minutes),
            public_fields={kind: tuple(names) for kind, names in settings.public_fields.items()},
            audit_archive=settings.audit_archive,
            backoff=settings.backoff,
            triage=settings.triage,
            limits=settings.alerts.limits,
            settings=settings,
        )


@dataclass(slots=True, frozen=True)
class Session:
    store: Store
    registry: Registry
    policy: Policy
    caller: Caller
    connection: str = "default"
    # None: documents as values. Else as text of at most so many bytes, longer ones left out, and lists with a budget.
    documents: int | None = None
    features: tuple[Feature, ...] = ()
    connections: tuple[str, ...] = ()  # all that the application has
    shell: Shell = NO_SHELL  # for commands that are shown

    @property
    def connection_label(self) -> str | None:
        """The connection, where there are several: then it is named with every task."""
        return self.connection if len(self.connections) > 1 else None

    def command(self, text: str | None) -> str | None:
        """Returns what mends something, with commands that are about this connection."""
        return text and for_connection(text, self.connection_label)

    @property
    def settings(self) -> Settings:
        """The application's settings; ``settings.of(OrderSettings)`` are those of a feature."""
        if self.policy.settings is None:
            raise ConfigError("this operator was made without settings", hint="make it by App.operator")
        return self.policy.settings

    @property
    def paged(self) -> bool:
        return self.documents is not None

    @property
    def sight(self) -> Sight:
        return Sight(self.caller.role, self._public, self.connection_label, self._belongs)

    def _belongs(self, task: Task) -> Belongs | None:
        return belonging(task, self.features)

    def _public(self, kind: str) -> Collection[str]:
        """Returns payload fields of a kind that everybody may see: by its handler, and by the settings."""
        known = self.registry.known(kind)
        return {*(() if known is None else known.public), *self.policy.public_fields.get(kind, ())}

    def may(self, role: Role) -> str:
        """Returns who acts; refuses a caller whose role is below this one."""
        if self.caller.role < role:
            raise NotAllowed(f"{self.caller.name} is {self.caller.role.label}; this needs {role.label}")
        return check_actor(self.caller.name)

    async def needs(self, planned: PlannedAction, rule: Rule | None = None) -> str | None:
        """Returns why a second operator would have to agree to this; None when nobody has to."""
        return (await judge(self.store, rule or self.policy.alone, self.caller.name, planned)).why

    async def alone(self, planned: PlannedAction, act: Act[T], rule: Rule | None = None) -> T:
        """Runs ``act`` without a second operator, counted; refused when one has to agree. ``rule``: where not tasks are
        counted, see ``amounts``."""
        return await alone(self.store, rule or self.policy.alone, self.caller.name, planned, act)

    async def ask(self, request: Request, reason: str | None, why: str) -> Record:
        """Asks for an action of a feature that a second operator has to agree to; returns the approval that waits."""
        return await approvals.ask_for(self.store, check_actor(self.caller.name), request, reason, why)

    async def carry_out(self, record: Record, reason: str | None) -> Record:
        """Agrees to an action of a feature that somebody else asked for, and does it."""
        who = check_actor(self.caller.name)
        return await approvals.carry_out(self.store, self.features, who, self, record, reason)

    def amounts(self, above: int, window: timedelta, book: str, noun: str) -> Rule:
        """Returns the rule for what is counted apart from tasks, such as money: more than ``above`` within ``window``
        needs a second operator, unless the policy says that nothing does."""
        return Rule(None if self.policy.alone.above is None else above, window, book, noun)

    @property
    def kinds(self) -> list[str]:
        """All kinds that the application names, also those that others handle."""
        return [*self.registry.handlers, *self.registry.declared]

    @property
    def queues(self) -> list[str]:
        return sorted(self.registry.queues())

    async def check_names(self, queue: str | None, kind: str | None) -> None:
        """Refuses a queue or kind that nobody knows."""
        if queue is not None:
            await self.check_queue(queue)
        if kind is not None:
            await self.check_kind(kind)

    async def check_queue(self, name: str) -> None:
        await inspect.check_queue(self.store, name, self.queues)

    async def check_kind(self, name: str) -> None:
        await inspect.check_kind(self.store, name, self.kinds)

    async def known(self, which: FailureFilter) -> FailureFilter:
        """Returns the same filter, with its fingerprint in full and its batch as a join. Refuses a kind, queue, cause
        or batch that nobody knows: "nothing matches" would be taken for good news."""
        await self.check_names(which.queue, which.kind)
        if which.fingerprint is not None:
            which = replace(which, fingerprint=await self.fingerprint(which.fingerprint))
        if which.join is not None:
            which = await self.meant(which)
            await check_members(self.store, self.features, str(which.join))
        return which

    async def meant(self, which: W) -> W:
        """Returns the same filter, with the batch that people name as the join whose members are meant."""
        if which.join is None:
            return which
        return replace(which, join=str((await members_of(self.store, self.features, which.join)).join))

    async def fingerprint(self, text: str) -> str:
        """Returns a fingerprint in full, also when only its beginning is given."""
        return (await causes.show(self.store, text)).row.fingerprint


class Service:
    """A part of ``Operator``, for one subject; features derive theirs from it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._store = session.store

    @property
    def _who(self) -> str:
        """Who acts, for the audit log."""
        return check_actor(self._session.caller.name)
