"""Sinks of both clients, each with an index of its own that is gone afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from redrive.outbox.sinks import sink_from_url
from redrive.outbox.sinks.elasticsearch import Elasticsearch
from redrive.outbox.sinks.opensearch import OpenSearch
from redrive.outbox.sinks.search_index import SearchIndex
from redrive.outbox.sinks.search_server import Refused
from tests.outbox.search.servers import SearchServerOfRun, server_of_run

SINKS = {"elasticsearch": Elasticsearch, "opensearch": OpenSearch}


@pytest.fixture(scope="module", params=["opensearch", "elasticsearch"])
def search_server(request: pytest.FixtureRequest) -> Iterator[SearchServerOfRun]:
    with server_of_run(request.param) as found:
        if found is None:
            pytest.skip(f"the client of {request.param} does not speak to the search server of this run")
        yield found


@pytest.fixture
def search_url(search_server: SearchServerOfRun) -> str:
    """The URL of a sink whose index nobody else has."""
    return search_server.sink_url(f"t{uuid4().hex[:12]}")


@pytest.fixture
async def make_sink(search_server: SearchServerOfRun, search_url: str) -> AsyncIterator[Callable[..., SearchIndex]]:
    """Makes sinks of one index; removes all that was made."""
    made: list[SearchIndex] = []

    def make(**options: Any) -> SearchIndex:
        made.append(SINKS[search_server.product](search_url, **options))
        return made[-1]

    yield make
    last: Any = sink_from_url(search_url)
    for index in ("first", "b", "c"):
        await _gone(last, f"{last._alias}-{index}")
    await _gone(last, last._alias)
    for sink in (*made, last):
        await sink.close()


async def _gone(sink: Any, name: str) -> None:
    try:
        await sink._server.ask("DELETE", f"/{name}")
    except Refused as error:
        assert error.status_code in (400, 404)


@pytest.fixture
def sink(make_sink: Callable[..., SearchIndex]) -> SearchIndex:
    return make_sink()
