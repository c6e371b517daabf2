"""Makes failures of what a handler raised or declared, with the place, the payload and the application's rules."""

from __future__ import annotations

import inspect
import logging
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import CodeType
from typing import Any

from redrive.handlers.functions import body_of, name_of
from redrive.handlers.registry import Handler
from redrive.kernel.classify import NO_RULES, FailureRules
from redrive.kernel.failure import Origin, failure_of
from redrive.kernel.machine import declared
from redrive.kernel.outcome import Fail, Failed, Outcome, Retry, Verdict
from redrive.kernel.summary import Payload
from redrive.kernel.task import Claimed

logger = logging.getLogger("redrive.failures")


def log_rule_error(what: str, function: Callable[..., Any], found: object) -> None:
    """Logs that an application's own function about failures raised; the failure is judged without it."""
    name = getattr(function, "__qualname__", repr(function))
    logger.warning(
        "the application's %s function %s %s; its answer is ignored",
        what,
        name,
        f"raised {type(found).__name__}" if isinstance(found, Exception) else f"gave back a {type(found).__name__}",
        exc_info=found if isinstance(found, Exception) else None,
    )


def origin_of(
    function: Callable[..., Any],
    *tasks: Claimed,
    deterministic: tuple[type[BaseException], ...] = (),
    rules: FailureRules = NO_RULES,
) -> Origin:
    """Returns what is known about where a failure comes from. Of several tasks, only what none of them was given is
    shown."""
    body = inspect.unwrap(body_of(function))
    code = getattr(body, "__code__", None)
    module = getattr(body, "__module__", None)
    public_module = "__main__" if module == "__mp_main__" else module
    given = [text for task in tasks for text in (task.payload, task.memo)]
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if isinstance(code, CodeType) else ()
    return Origin(
        module,
        code if isinstance(code, CodeType) else None,
        f"{public_module}:{getattr(body, '__qualname__', name_of(body))}",
        Payload(*given, declared=parameters),
        replace(rules, on_error=log_rule_error),
        deterministic,
        datetime.now(UTC),
    )


def handled_by(handler: Handler, *tasks: Claimed) -> Origin:
    return origin_of(handler.function, *tasks, deterministic=handler.deterministic, rules=handler.rules)


def failed(error: BaseException, origin: Origin) -> Failed:
    """Returns the outcome for an exception."""
    if isinstance(error, Fail | Retry):
        return declared(error, origin)
    return Failed(failure_of(error, origin))


def decided(verdict: Verdict, origin: Callable[[], Origin]) -> Outcome:
    """Returns the outcome for a verdict (Retry, Fail, Cancel …); those that declare a failure keep where they come
    from."""
    return failed(verdict, origin()) if isinstance(verdict, Fail | Retry) else verdict  # type: ignore[return-value]


# -- to a process of its own ----------------------------------------------------------------------------------------


def packed(rules: FailureRules) -> bytes:
    """Returns the rules in a form that can be sent to a child process, without functions that cannot be: lambdas,
    functions in functions."""
    parts = _travelling(rules.classify), rules.named, _travelling(rules.fingerprint), _travelling(rules.table)
    return pickle.dumps(parts)


def _travelling(functions: list[Any]) -> list[Any]:
    found = []
    for function in functions:
        try:
            pickle.dumps(function)
        except Exception as error:
            log_rule_error("failure", function, error)
        else:
            found.append(function)
    return found


def unpacked(rules: bytes) -> FailureRules:
    return FailureRules(*pickle.loads(rules))  # noqa: S301 - from our own parent
