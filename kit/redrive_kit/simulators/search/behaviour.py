"""How a simulated search server behaves: all of it may be changed while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from redrive.errors import InvalidInput
from redrive.settings.declare import Values, option
from redrive.settings.values import Unfit


class SearchBehaviour(Values):
    """What can be chosen. Shares are from 0 to 1, times in seconds."""

    product: Literal["elasticsearch", "opensearch"] = option("opensearch", help="Which one it says it is.")
    latency: float = option(0.0, ge=0, le=600, help="How long each request takes, half of it by chance.")
    rate: float = option(0.0, ge=0, le=1e9, help="Requests a second; beyond that 429. 0: any number.")
    error_share: float = option(0.0, ge=0, le=1, help="Share of requests that get a 500.")
    lost_share: float = option(0.0, ge=0, le=1, help="Share of requests that are done, but whose answer is lost.")
    down_as: Literal["503", "drop", "hang"] = option("503", help="What an outage looks like.")
    busy_share: float = option(0.0, ge=0, le=1, help="Share of documents that get a 429 inside a bulk answer.")
    broken_share: float = option(0.0, ge=0, le=1, help="Share of documents that get a 503 inside a bulk answer.")
    max_bytes: int = option(100_000_000, ge=1, help="Largest request; beyond that 413.")
    refresh_interval: float = option(1.0, ge=0, le=86_400, help="When what was written is found by itself.")


def changed(behaviour: SearchBehaviour, given: Mapping[str, Any]) -> SearchBehaviour:
    """Returns a behaviour with other values; what cannot be is refused, and nothing is changed."""
    try:
        return SearchBehaviour.from_map({**behaviour.given, **given})
    except Unfit as error:
        raise InvalidInput(f"a search server cannot be like that: {error}") from None


def shown(behaviour: SearchBehaviour) -> dict[str, Any]:
    """Returns all of it, by name."""
    return {name: getattr(behaviour, name) for name in SearchBehaviour._fields}
