"""How much load is made, and of what kind: from options, else from the environment, else the usual values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from redrive.errors import InvalidInput

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


@dataclass(slots=True, frozen=True)
class LoadPlan:
    """``rate``: operations that begin in a second; 0: as fast as it goes. ``api``: the application that is driven; with
    None the database is written to."""

    scenario: Scenario = Scenario.CREATE
    total: int = 3000
    bytes: int = 200
    rate: float = 100.0
    concurrency: int = 20
    api: str | None = None

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
    found = {}
    for field, (name, read) in _VALUES.items():
        if given.get(field) is not None:
            found[field] = read(_option(field), given[field])
        elif environment.get(name, "") != "":
            found[field] = read(name, environment[name])
    return LoadPlan(**found)


def _option(field: str) -> str:
    return "--api-base" if field == "api" else f"--{field}"


def _scenario(name: str, value: Any) -> Scenario:
    try:
        return Scenario(str(value).strip().lower())
    except ValueError:
        raise InvalidInput(f"{name} is one of {', '.join(Scenario)}, not {value!r}") from None


def _whole(least: int, most: int) -> Any:
    def read(name: str, value: Any) -> int:
        try:
            found = int(str(value).strip())
        except ValueError:
            found = least - 1
        if not least <= found <= most:
            raise InvalidInput(f"{name} is a whole number from {least:,} to {most:,}, not {value!r}")
        return found

    return read


def _rate(name: str, value: Any) -> float:
    try:
        found = float(str(value).strip())
    except ValueError:
        found = -1.0
    if not (math.isfinite(found) and 0 <= found <= MOST_RATE):
        raise InvalidInput(
            f"{name} is a number of operations per second, not {value!r}", hint="0 is as fast as it goes"
        )
    return found


def _address(name: str, value: Any) -> str:
    address = str(value).strip().rstrip("/")
    if not address.startswith(("http://", "https://")) or not address.partition("://")[2]:
        raise InvalidInput(f"{name} is no address of an application", hint="for example http://127.0.0.1:8340")
    return address


_VALUES: Mapping[str, tuple[str, Any]] = {
    "scenario": ("LOADGEN_SCENARIO", _scenario),
    "total": ("TOTAL_OPS", _whole(1, MOST_OPS)),
    "bytes": ("CONTENT_BYTES", _whole(0, MOST_BYTES)),
    "rate": ("RATE_PER_SEC", _rate),
    "concurrency": ("CONCURRENCY", _whole(1, MOST_CONCURRENCY)),
    "api": ("API_BASE", _address),
}
