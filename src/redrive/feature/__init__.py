"""What the author of a feature imports: ``from redrive.feature import Feature, Effects, …``.

What its routes need is in ``redrive.feature.api``, its commands in ``redrive.feature.cli``, its pages in
``redrive.feature.console``: only the process that serves them imports those.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.errors import (
        ConfigError,
        Conflict,
        InvalidInput,
        NotAllowed,
        NotFound,
        RedriveError,
        Unavailable,
    )
    from redrive.handlers.context import Context
    from redrive.handlers.kinds import Kind, Kinds
    from redrive.ids import new_id
    from redrive.kernel.alerts.own import AlertRule
    from redrive.kernel.alerts.rules import Unit
    from redrive.kernel.applied import Applied
    from redrive.kernel.approved import ApprovedAction, Asked, Land, Request
    from redrive.kernel.audit import Audit
    from redrive.kernel.circuit import Circuit
    from redrive.kernel.commit import CloseJoin, Commit
    from redrive.kernel.diagnosis import Dependency, Finding, Level
    from redrive.kernel.duty import Duty
    from redrive.kernel.feature import Belongs, Feature, Groups, Members, Need
    from redrive.kernel.joins import Join, NewJoin, as_document, from_document
    from redrive.kernel.ledger import Posting
    from redrive.kernel.machine import Event, Transition
    from redrive.kernel.operation import Action
    from redrive.kernel.outcome import Cancel, Fail, Retry, Snooze
    from redrive.kernel.payload import encode
    from redrive.kernel.ports.store import Store
    from redrive.kernel.reactions import Effects, Landed, React, Rows
    from redrive.kernel.retry_guard import RetryGuard, Withheld
    from redrive.kernel.task import NewTask, State, Task, check_name
    from redrive.ops.access import Caller, Role
    from redrive.ops.allowance import PlannedAction
    from redrive.ops.operator import Operator
    from redrive.ops.operator.declared import Closed, Given, Limit, Open, Page, Reason, action, look, view_of
    from redrive.ops.operator.session import Service
    from redrive.settings import FeatureSettings, Settings, setting

__all__ = [
    "Action",
    "AlertRule",
    "App",
    "Applied",
    "ApprovedAction",
    "Asked",
    "Audit",
    "Belongs",
    "Caller",
    "Cancel",
    "Circuit",
    "CloseJoin",
    "Closed",
    "Commit",
    "ConfigError",
    "Conflict",
    "Context",
    "Dependency",
    "Duty",
    "Effects",
    "Event",
    "Fail",
    "Feature",
    "FeatureSettings",
    "Finding",
    "Given",
    "Groups",
    "InvalidInput",
    "Join",
    "Kind",
    "Kinds",
    "Land",
    "Landed",
    "Level",
    "Limit",
    "Members",
    "Need",
    "NewJoin",
    "NewTask",
    "NotAllowed",
    "NotFound",
    "Open",
    "Operator",
    "Page",
    "PlannedAction",
    "Posting",
    "React",
    "Reason",
    "RedriveError",
    "Request",
    "Retry",
    "RetryGuard",
    "Role",
    "Rows",
    "Service",
    "Settings",
    "Snooze",
    "State",
    "Store",
    "Task",
    "Transition",
    "Unavailable",
    "Unit",
    "Withheld",
    "action",
    "as_document",
    "check_name",
    "encode",
    "from_document",
    "look",
    "new_id",
    "setting",
    "view_of",
]

# Where each name is at home. It is imported when it is asked for: what every process loads of a feature that comes with
# redrive brings no operator and no worker along.
_HOMES = {
    "app": "App",
    "errors": "ConfigError Conflict InvalidInput NotAllowed NotFound RedriveError Unavailable",
    "handlers.context": "Context",
    "handlers.kinds": "Kind Kinds",
    "ids": "new_id",
    "kernel.alerts.own": "AlertRule",
    "kernel.alerts.rules": "Unit",
    "kernel.applied": "Applied",
    "kernel.approved": "ApprovedAction Asked Land Request",
    "kernel.audit": "Audit",
    "kernel.circuit": "Circuit",
    "kernel.commit": "CloseJoin Commit",
    "kernel.diagnosis": "Dependency Finding Level",
    "kernel.duty": "Duty",
    "kernel.feature": "Belongs Feature Groups Members Need",
    "kernel.joins": "Join NewJoin as_document from_document",
    "kernel.ledger": "Posting",
    "kernel.machine": "Event Transition",
    "kernel.operation": "Action",
    "kernel.outcome": "Cancel Fail Retry Snooze",
    "kernel.payload": "encode",
    "kernel.ports.store": "Store",
    "kernel.reactions": "Effects Landed React Rows",
    "kernel.retry_guard": "RetryGuard Withheld",
    "kernel.task": "NewTask State Task check_name",
    "ops.access": "Caller Role",
    "ops.allowance": "PlannedAction",
    "ops.operator": "Operator",
    "ops.operator.declared": "Closed Given Limit Open Page Reason action look view_of",
    "ops.operator.session": "Service",
    "settings": "FeatureSettings Settings setting",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'redrive.feature' has no attribute {name!r}")
    found = getattr(import_module(f"redrive.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
