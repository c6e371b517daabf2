"""A search server in trouble, and one that does not let everybody in: what is tried again, and when."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from redrive.errors import ConfigError
from redrive.kernel.classify import classify
from redrive.outbox.sinks.elasticsearch import Elasticsearch
from redrive.outbox.sinks.opensearch import OpenSearch
from redrive.outbox.sinks.search_index import SearchIndex
from redrive.outbox.verdict import Done, Retry
from redrive_kit.simulators.search.server import SearchBehaviour, SearchSimulator
from tests.outbox.search.conftest import SINKS
from tests.outbox.search.events import stored, upsert
from tests.outbox.search.servers import serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["opensearch", "elasticsearch"])
def simulator(request: pytest.FixtureRequest) -> SearchSimulator:
    return SearchSimulator(SearchBehaviour(product=request.param))


@pytest.fixture
def url(simulator: SearchSimulator) -> Iterator[str]:
    with serving(simulator) as address:
        yield f"{simulator.trouble.behaviour.product}+{address}/notes"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[SearchIndex]:
    sink = SINKS[url.partition("+")[0]](url)
    yield sink
    await sink.close()


@pytest.fixture
async def sink(url: str) -> AsyncIterator[SearchIndex]:
    async with opened(f"{url}?timeout=60") as made:
        await made.write([upsert(0, 1)])
        yield made


async def test_a_limited_rate_says_how_long_to_wait(simulator: SearchSimulator, sink: SearchIndex) -> None:
    simulator.change({"rate": 0.1})
    simulator.trouble.wait_for_room()
    said = await sink.write([upsert(1, 1), upsert(2, 1)])
    assert [(one.reason, one.after is not None and one.after >= 1) for one in said if isinstance(one, Retry)] == [
        ("http_429", True)
    ] * 2


async def test_an_outage_is_waited_for(simulator: SearchSimulator, sink: SearchIndex) -> None:
    simulator.change({"down_for": 600})
    [said] = await sink.write([upsert(1, 1)])
    assert isinstance(said, Retry) and (said.reason, said.after) == ("http_5xx", 1.0)
    with pytest.raises(Exception, match="HTTP 503"):
        await sink.check()
    simulator.change({"down_for": 0})
    await sink.check()
    assert await sink.write([upsert(1, 1)]) == [Done()]


@pytest.mark.parametrize(("down_as", "reason"), [("drop", "connect"), ("hang", "timeout")])
async def test_no_answer_is_no_verdict(simulator: SearchSimulator, url: str, down_as: str, reason: str) -> None:
    simulator.change({"down_for": 600, "down_as": down_as})
    async with opened(f"{url}?timeout={1 if down_as == 'hang' else 60}") as sink:
        with pytest.raises(OSError) as caught:
            await sink.write([upsert(1, 1)])
    assert classify(caught.value).reason == reason
    simulator.change({"down_for": 0})


async def test_a_server_that_is_not_there(simulator: SearchSimulator) -> None:
    async with opened(f"{simulator.trouble.behaviour.product}+http://user:hunter2@127.0.0.1:1/notes") as sink:
        with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1: ") as caught:
            await sink.write([upsert(1, 1)])
    assert classify(caught.value).reason == "connect"
    assert "hunter2" not in str(caught.value)


async def test_partial_failures_are_retried_alone(simulator: SearchSimulator, sink: SearchIndex) -> None:
    simulator.change({"busy_share": 0.3, "broken_share": 0.3})
    left, reasons = [upsert(number, 1) for number in range(200)], set()
    while left:
        said = await sink.write(left)
        reasons |= {one.reason for one in said if isinstance(one, Retry)}
        assert all(isinstance(one, Done | Retry) for one in said)
        left = [event for event, one in zip(left, said, strict=True) if isinstance(one, Retry)]
    assert reasons == {"http_429", "http_5xx"}
    assert len(await stored(sink)) == 200


async def test_what_was_done_without_an_answer_is_done_the_second_time(
    simulator: SearchSimulator, sink: SearchIndex
) -> None:
    simulator.change({"lost_share": 1})
    with pytest.raises(ConnectionError):
        await sink.write([upsert(1, 3)])
    simulator.change({"lost_share": 0})
    assert await sink.write([upsert(1, 3)]) == [Done()]


async def test_who_is_not_let_in_waits(simulator: SearchSimulator) -> None:
    product = simulator.trouble.behaviour.product
    guarded = SearchSimulator(simulator.trouble.behaviour, basic=("ann", "p@ss"), api_key="aWQ6a2V5")
    with serving(guarded) as address:
        host = address.removeprefix("http://")
        async with opened(f"{product}+http://{host}/notes") as sink:
            [said] = await sink.write([upsert(1, 1)])
            assert isinstance(said, Retry) and said.reason == "http_4xx"
            with pytest.raises(Exception, match="HTTP 401"):
                await sink.check()
        for url in (f"{product}+http://ann:p%40ss@{host}/notes", f"{product}+http://{host}/notes?api_key=aWQ6a2V5"):
            async with opened(url) as sink:
                assert await sink.write([upsert(1, 1)]) == [Done()]
                await sink.check()


async def test_certificates_are_checked(simulator: SearchSimulator, tmp_path: Any) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    tls = {"ssl_keyfile": str(tmp_path / "key.pem"), "ssl_certfile": str(tmp_path / "cert.pem")}
    with serving(simulator, **tls) as address:
        url = f"{simulator.trouble.behaviour.product}+{address}/notes"
        async with opened(url) as sink:
            with pytest.raises(ssl.SSLError, match=r"certificate verify failed.*\?ca=") as caught:
                await sink.write([upsert(1, 1)])
        assert classify(caught.value).reason == "tls"
        for trusted in (f"{url}?ca={tmp_path}/ca.pem", f"{url}?verify=false"):
            async with opened(trusted) as sink:
                assert await sink.write([upsert(1, 1)]) == [Done()]


async def test_the_client_of_elasticsearch_says_what_to_do_about_opensearch() -> None:
    with serving(SearchSimulator(SearchBehaviour(product="opensearch"))) as address:
        sink = Elasticsearch(f"elasticsearch+{address}/notes")
        for asked in (sink.check(), sink.write([upsert(1, 1)])):
            with pytest.raises(ConfigError, match="is not Elasticsearch") as caught:
                await asked
            assert "opensearch+http://" in str(caught.value.hint)
        await sink.close()
        other = OpenSearch(f"opensearch+{address}/notes")
        assert await other.write([upsert(1, 1)]) == [Done()]
        await other.close()
