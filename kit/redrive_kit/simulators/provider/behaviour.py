"""How a simulated provider behaves (all of it may be changed while it runs), and what ``redrive.toml`` says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redrive.kernel.classify import FailureType
from redrive.settings.declare import option
from redrive.settings.values import Problem, Unfit
from redrive_kit.simulators.faults import Troublesome, finite

NAME = "simulated"
# Why jobs fail, by what that counts as: text, the provider's code, and an HTTP status where it has one.
FAILURES: Mapping[str, tuple[str, str, int | None]] = {
    FailureType.MODEL_ERROR: ("the model is not available", "MODEL_UNAVAILABLE", 503),
    FailureType.PARAM_ERROR: ("the prompt is not valid", "INVALID_PROMPT", 400),
    FailureType.TIMEOUT: ("the job took too long", "JOB_TIMEOUT", 504),
    FailureType.NETWORK: ("fetch failed", "FETCH_FAILED", None),
    FailureType.UNKNOWN: ("something went wrong", "INTERNAL", None),
}


def _mix(given: dict[str, float]) -> dict[str, float]:
    for name, share in given.items():
        if name not in FAILURES:
            raise Unfit(Problem((name,), f"it has to be one of {', '.join(FAILURES)}", name))
        if not 0 <= share <= 1:
            raise Unfit(Problem((name,), "it is a share, from 0 to 1", share))
    if sum(given.values()) > 1 + 1e-9:
        raise ValueError("the shares are more than 1 together")
    return given


class Behaviour(Troublesome):
    """What can be chosen besides its trouble."""

    duration: float = option(2.0, "SECONDS", ge=0, le=864_000, check=finite, help="How long a job runs.")
    spread: float = option(0.5, "SHARE", ge=0, le=1, check=finite, help="How much of that is by chance: 0 is none.")
    waiting: float = option(0.0, "SECONDS", ge=0, le=864_000, check=finite, help="How long it is queued before that.")
    steps: int = option(10, "NUMBER", ge=1, le=1_000, help="Steps in which progress is told.")
    failures: dict[str, float] = option({}, check=_mix, help="Which share of jobs fails, by type.")
    page_size: int = option(100, "NUMBER", ge=1, le=10_000, help="Jobs on a page.")
    max_ids: int = option(1_000, "NUMBER", ge=1, le=100_000, help="Jobs that one request may ask for.")


def table_of(url: str, *, auth_env: str | None = None) -> dict[str, Any]:
    """Returns what ``[providers.NAME]`` says for a simulated provider at this address."""
    return {
        "base_url": url,
        **({} if auth_env is None else {"auth_env": auth_env}),
        "start": {"url": "/jobs", "body": {"payload": "{payload}", "callback_url": "{callback_url?}"}},
        "poll": {"url": "/jobs?ids={ids}", "list": "jobs", "next": "next"},
        "cancel": {"url": "/jobs/{id}/cancel"},
        "find": {"url": "/jobs?key={key}", "list": "jobs"},
    }


def toml_of(url: str, name: str = NAME, *, auth_env: str | None = None) -> str:
    """Returns the same as lines of ``redrive.toml``."""
    lines: list[str] = []
    tables: dict[str, Any] = {name: table_of(url, auth_env=auth_env)}
    for part, values in (("", tables[name]), *((f".{k}", v) for k, v in tables[name].items() if isinstance(v, dict))):
        lines.append(f"[providers.{name}{part}]")
        lines += [
            f"{key} = {_written(value)}"
            for key, value in values.items()
            if key == "body" or not isinstance(value, dict)
        ]
    return "\n".join(lines)


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_written(one)}" for key, one in value.items()) + " }"
    return f'"{value}"'
