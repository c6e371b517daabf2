"""How much load is made, and of what kind: from options, else from the environment, else the usual values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from redrive.errors import InvalidInput
from redrive.settings import Unfit, fields_of, setting
from redrive.settings.declare import Values

MOST_OPS = 10_000_000
MOST_BYTES = 900_000  # a payload has at most a megabyte
MOST_CONCURRENCY = 1_000
MOST_RATE = 1_000_000.0


class Scenario(StrEnum):
    """What is done with notes."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    MIXED = "mixed"


def _scenario(text: str) -> Scenario:
    try:
        return Scenario(text.strip().lower())
    except ValueError:
        raise ValueError(f"it is one of {', '.join(Scenario)}") from None


def _address(text: Any) -> str:
    address = str(text).strip().rstrip("/")
    if not address.startswith(("http://", "https://")) or not address.partition("://")[2]:
        raise ValueError("it is no address of an application, for example http://127.0.0.1:8340")
    return address


def _value(name: str, default: Any, metavar: str, help: str, **limits: Any) -> Any:
    """Returns a field that is an option, too."""
    made = setting(name, default, **limits)
    made.metavar, made.help = metavar, f"{help} (else {name}, {default or 'none'})."
    return made


class LoadPlan(Values):
    """``rate``: operations that begin in a second. ``api_base``: the application that is driven; with None the database
    is written to."""

    scenario: Scenario = _value("LOADGEN_SCENARIO", Scenario.CREATE, "NAME", ", ".join(Scenario), parse=_scenario)
    total: int = _value("TOTAL_OPS", 3000, "N", "Operations", ge=1, le=MOST_OPS)
    bytes: int = _value("CONTENT_BYTES", 200, "N", "Size of a text", ge=0, le=MOST_BYTES)
    rate: float = _value("RATE_PER_SEC", 100.0, "N", "Per second, 0 is as fast as it goes", ge=0, le=MOST_RATE)
    concurrency: int = _value("CONCURRENCY", 20, "N", "At the same time", ge=1, le=MOST_CONCURRENCY)
    api_base: str | None = _value("API_BASE", None, "HTTP-URL", "The application to drive", parse=_address)

    @property
    def needed(self) -> int:
        """How many notes have to be there before: each is deleted once, or changed about ten times."""
        if self.scenario is Scenario.DELETE:
            return self.total
        if self.scenario is Scenario.UPDATE:
            return min(self.total, max(self.concurrency, self.total // 10))
        return 0


def plan_of(given: Mapping[str, Any], environment: Mapping[str, str]) -> LoadPlan:
    """Returns the plan of what was given as options (None: was not) and of the environment; refused where a value
    cannot be used, by the name that it was given by."""
    names = {field: one.name for field, one in fields_of(LoadPlan).items()}
    found: dict[str, Any] = {field: environment[name] for field, name in names.items() if environment.get(name)}
    typed = {field: value for field, value in given.items() if value is not None}
    names |= {field: f"--{field.replace('_', '-')}" for field in typed}
    try:
        return LoadPlan(**{**found, **typed})
    except Unfit as error:
        problems = (f"{names[str(one.place[0])]}: {one.message}, not {one.value!r}" for one in error.problems)
        raise InvalidInput("; ".join(problems)) from None
