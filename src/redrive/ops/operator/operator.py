"""``Operator``: a caller, a store and the rules; its services by subject."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from redrive.errors import ConfigError
from redrive.ops.access import Caller, Role, refuse_reserved
from redrive.ops.operator.session import Policy, Service, Session
from redrive.ops.pages import LONGEST_ALONE
from redrive.ops.shell import NO_SHELL, Shell
from redrive.ops.views import Sight

if TYPE_CHECKING:
    from redrive.ops.operator.alerts import AlertService
    from redrive.ops.operator.approvals import ApprovalService
    from redrive.ops.operator.audit import AuditService
    from redrive.ops.operator.causes import CauseService
    from redrive.ops.operator.circuits import CircuitService
    from redrive.ops.operator.control import ControlService
    from redrive.ops.operator.erasures import ErasureService
    from redrive.ops.operator.executors import ExecutorService
    from redrive.ops.operator.failures import FailureService
    from redrive.ops.operator.health import HealthService
    from redrive.ops.operator.operations import OperationService
    from redrive.ops.operator.overview import OverviewService
    from redrive.ops.operator.schedules import ScheduleService
    from redrive.ops.operator.settings import SettingService
    from redrive.ops.operator.tasks import TaskService
    from redrive.ops.operator.tokens import TokenService
    from redrive.ops.operator.workers import WorkerService

S = TypeVar("S", bound=Service)
Peers = Callable[[Caller, str], Awaitable["Operator"]]
# Each is imported when it is asked for: most commands and requests want one of them.
SERVICES = {
    "alerts": "AlertService",
    "approvals": "ApprovalService",
    "audit": "AuditService",
    "causes": "CauseService",
    "circuits": "CircuitService",
    "control": "ControlService",
    "erasures": "ErasureService",
    "executors": "ExecutorService",
    "failures": "FailureService",
    "health": "HealthService",
    "operations": "OperationService",
    "overview": "OverviewService",
    "schedules": "ScheduleService",
    "settings": "SettingService",
    "tasks": "TaskService",
    "tokens": "TokenService",
    "workers": "WorkerService",
}


def service_of(name: str) -> type[Service]:
    """Returns the class of a service by the name that it has in an operator."""
    found: type[Service] = getattr(import_module(f"redrive.ops.operator.{name}"), SERVICES[name])
    return found


class Operator:
    """All that one caller can look at and do. ``peers`` opens another of the session's connections."""

    alerts: AlertService
    approvals: ApprovalService
    audit: AuditService
    causes: CauseService
    circuits: CircuitService
    control: ControlService
    erasures: ErasureService
    executors: ExecutorService
    failures: FailureService
    health: HealthService
    operations: OperationService
    overview: OverviewService
    schedules: ScheduleService
    settings: SettingService
    tasks: TaskService
    tokens: TokenService
    workers: WorkerService

    def __init__(self, session: Session, peers: Peers | None = None) -> None:
        self._session = session
        self._peers = peers

    if not TYPE_CHECKING:  # else a misspelt name would pass

        def __getattr__(self, name: str) -> Service:
            """Makes a service when it is first asked for."""
            if name not in SERVICES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            made = service_of(name)(self._session)
            setattr(self, name, made)
            return made

    def of(self, service: type[S]) -> S:
        """Returns a feature's own service, for the same caller."""
        return service(self._session)

    @property
    def caller(self) -> Caller:
        return self._session.caller

    @property
    def policy(self) -> Policy:
        return self._session.policy

    @property
    def connection(self) -> str:
        return self._session.connection

    @property
    def connection_label(self) -> str | None:
        """The same, where there are several."""
        return self._session.connection_label

    @property
    def connections(self) -> tuple[str, ...]:
        """All connections of the application."""
        return self._session.connections

    async def at(self, connection: str) -> Operator:
        """Returns what the same caller can look at and do on another connection."""
        if connection == self.connection:
            return self
        if self._peers is None:
            raise ConfigError("this operator was made for one connection", hint="make it by App.operator")
        return await self._peers(self.caller, connection)

    def insist(self, role: Role) -> None:
        """Refuses a caller whose role is below this one."""
        self._session.may(role)

    def named(self, actor: str | None) -> Operator:
        """Returns the same, acting under this name. A token's name cannot be replaced."""
        if actor is None or self.caller.token_id is not None:
            return self
        return self._with(replace(self._session, caller=replace(self.caller, name=refuse_reserved(actor))))

    def for_pages(self, shell: Shell = NO_SHELL) -> Operator:
        """Returns the same, for whoever writes pages: documents are not parsed, and long ones are left out. ``shell``:
        how the commands on them find the store; that is for those who may act."""
        shown = shell if self.caller.role >= Role.OPERATOR else NO_SHELL
        return self._with(replace(self._session, documents=LONGEST_ALONE, shell=shown))

    @property
    def shell(self) -> Shell:
        """How commands that are shown to the caller find the store."""
        return self._session.shell

    @property
    def sight(self) -> Sight:
        """What the caller may see, for ``redrive.ops.views``."""
        return self._session.sight

    def _with(self, session: Session) -> Operator:
        return Operator(session, self._peers)
