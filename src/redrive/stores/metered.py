"""Measures calls of a store at the port, once for all who call."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from redrive.errors import RedriveError
from redrive.kernel.series import Meter


class Measured(Protocol):
    @property
    def meter(self) -> Meter: ...


P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Measured)
Method = Callable[Concatenate[M, P], Coroutine[Any, Any, T]]


def metered(verb: str) -> Callable[[Method[M, P, T]], Method[M, P, T]]:
    """Measures a verb of a store, whether it is answered or raises."""

    def measure(method: Method[M, P, T]) -> Method[M, P, T]:
        @wraps(method)
        async def call(self: M, /, *args: P.args, **kwargs: P.kwargs) -> T:
            began = time.perf_counter()
            try:
                return await method(self, *args, **kwargs)
            except RedriveError as error:
                self.meter.failed(error.code)
                raise
            finally:
                self.meter.took(verb, time.perf_counter() - began)

        return call

    return measure
