"""``--kind``, ``--code`` and the like: which failed tasks a command is about."""

from __future__ import annotations

import inspect as python
from collections.abc import Callable
from typing import Annotated, Any

import typer

from redrive.kernel.failed import Failures
from redrive.ops import failed

_HELP = {
    "kind": ("KIND", "Of this kind."),
    "queue": ("NAME", "Of this queue."),
    "group": ("NAME", "Of this group of tasks."),
    "scope": ("TEXT", "Of this scope (an episode, a customer, an order)."),
    "trace": ("ID", "Of this trace."),
    "code": ("CODE", "With this error code."),
    "dead_reason": ("REASON", "non_retryable or max_attempts_exceeded."),
    "failure_type": ("TYPE", "model_error, param_error, timeout, network or unknown."),
    "fingerprint": ("ID", "Failed by this cause, as redrive groups lists them."),
}
_NAMES = {"trace": "trace_id", "code": "error_code"}
FILTERS = {
    name: Annotated[str | None, typer.Option(f"--{name.replace('_', '-')}", metavar=metavar, help=text,
                                             rich_help_panel="Which tasks")]
    for name, (metavar, text) in _HELP.items()
}  # fmt: skip


def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options; it gets them as one ``which``."""
    signature = python.signature(command, eval_str=True)
    own = [p for name, p in signature.parameters.items() if name != "which"]
    added = [
        python.Parameter(name, python.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in FILTERS.items()
    ]

    def wrapped(**given: Any) -> None:
        which = failed.failures(**{_NAMES.get(name, name): given.pop(name) for name in FILTERS})
        command(**given, which=which)

    wrapped.__doc__ = command.__doc__
    wrapped.__name__ = command.__name__
    plain = [p.replace(kind=python.Parameter.KEYWORD_ONLY) for p in own]
    wrapped.__signature__ = signature.replace(parameters=[*plain, *added])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in [*plain, *added]}
    return wrapped


def worded(which: Failures) -> str:
    """A filter for people."""
    named = {"trace_id": "trace", "error_code": "code"}
    given = [
        f"{named.get(name, name).replace('_', ' ')} {getattr(which, name)}"
        for name in Failures.__dataclass_fields__ if name not in ("ids", "batch") and getattr(which, name) is not None
    ]  # fmt: skip
    return ", ".join(given) or "all failures"
