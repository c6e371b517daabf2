"""Whether something has failed since a list was made; the list itself is refreshed when somebody asks for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl, unquote

from redrive.console.filters import of_failures
from redrive.ops.operator import Operator


def sampler(argument: str) -> Callable[[Operator], Awaitable[Mapping[str, str]]]:
    # Quoted once more by the page, so that no comma of a filter ends the topic.
    which = of_failures(dict(parse_qsl(unquote(argument))))

    async def sample(operator: Operator) -> Mapping[str, str]:
        end, total = await operator.failures.end(which)
        return {"failures": f"{end}/{total}"}

    return sample
