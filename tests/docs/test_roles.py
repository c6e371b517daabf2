"""The table of roles in the documentation says what the operator's services ask for."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import redrive.ops.operator as package
from redrive.ops.access import Role
from redrive.ops.operator.declared import declared_by
from redrive.ops.operator.session import Service

DOCS = Path(__file__).parents[2] / "docs" / "operations.md"
LOOKS = "look, at what is safe to show"
# How the table calls what needs more than to look.
WORDS = {
    "approve": "approve",
    "reject": "reject",
    "prune": "prune the audit log",
    "set_limit": "change limits",
    "change_limit": "change limits",
    "claim": "work as an executor",
    "heartbeat": "work as an executor",
    "report": "work as an executor",
    "forget": "forget",
    "replay": "replay",
    "select": "replay",
    "foresee": "replay",
    "retry": "retry",
    "retry_matching": "retry",
    "annotate": "annotate causes",
    **dict.fromkeys(("note", "mute", "resolve", "reopen"), "annotate causes"),
    "silence": "silence alerts",
    "unsilence": "silence alerts",
    "AlertService.test": "send a test message about alerts",
    "drill": "run drills",
    "cancel": "cancel",
    "document": "see payloads and results",
    "enqueue": "enqueue",
    "pause": "pause",
    "drain": "drain workers",
    "drain_all": "drain workers",
    "CircuitService.open": "open, close and probe circuits",
    "CircuitService.close": "open, close and probe circuits",
    "CircuitService.probe": "open, close and probe circuits",
    "resume": "resume",
    "run_now": "run schedules now",
    "SettingService.list": "see settings",
    "create": "create",
    "revoke": "revoke tokens",
    "OperationService.begin": "begin and steer operations",
    "OperationService.preview": "begin and steer operations",
    "OperationService.begin PURGE": "purge",
    "OperationService.preview PURGE": "purge",
    "OperationService.put_back": "put back",
    "ErasureService.begin": "erase",
    "ErasureService.preview": "erase",
    "TokenService.list": "list, create",
    "verify": "verify the audit log",
    "export": "export",
    "query": "query",
}


def rows() -> dict[Role, str]:
    found = re.findall(r"^\| (viewer|operator|admin) \| (.*) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    return {Role[name.upper()]: text for name, text in found}


def needed() -> dict[str, Role]:
    """The role that each method of each service asks for; what asks for none only passes on to one that does."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    found: dict[str, Role] = {}
    for service in Service.__subclasses__():
        if not service.__module__.startswith(package.__name__):  # a feature's own
            continue
        for name, method in inspect.getmembers(service, inspect.isfunction):
            text = inspect.getsource(method)
            if name.startswith("_"):
                continue
            if name in declared_by(service):
                found[f"{service.__name__}.{name}"] = declared_by(service)[name].role
            for role in re.findall(r"\bmay\(Role\.(\w+)\)", text):
                found[f"{service.__name__}.{name}"] = Role[role]
            if "may(self._role(action))" in text:
                chosen = inspect.getsource(service._role)  # type: ignore[attr-defined]
                more, special, usual = re.findall(r"Role\.(\w+) if action is Action\.(\w+) else Role\.(\w+)", chosen)[0]
                found[f"{service.__name__}.{name}"] = Role[usual]
                found[f"{service.__name__}.{name} {special}"] = Role[more]
    return found


def test_the_table_names_what_each_role_may() -> None:
    table = rows()
    assert list(table) == list(Role)
    for action, role in needed().items():
        word = WORDS.get(action) or WORDS.get(action.partition(".")[2]) or (LOOKS if role is Role.VIEWER else None)
        assert word is not None, f"{action} needs {role.label}: say so in the table, and here"
        named = [each for each, text in table.items() if re.search(rf"\b{re.escape(word)}\b", text)]
        assert named == [role], f"{action} needs {role.label}; {word!r} is in the table for {named}"


def test_nothing_is_missed() -> None:
    found = needed()
    assert len(found) > 50 and set(found.values()) == set(Role)
    assert {name for name, role in found.items() if role is Role.ADMIN} >= {
        "ErasureService.begin",
        "TokenService.create",
    }
