"""URLs of search sinks, and answers that are none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import ConfigError
from redrive.outbox.application import Outbox
from redrive.outbox.sinks import sink_from_url
from redrive.outbox.sinks.elasticsearch import Elasticsearch
from redrive.outbox.sinks.opensearch import OpenSearch
from redrive.outbox.sinks.search_index import all_of, verdicts
from redrive.outbox.sinks.search_server import Refused, access_of, refused
from redrive.outbox.verdict import Done, Failed, Retry
from redrive.worker.prepare import named
from redrive_kit.simulators.search.server import SearchBehaviour, SearchSimulator
from tests.outbox.conftest import make_app
from tests.outbox.search.events import upsert
from tests.outbox.search.servers import serving


def test_everything_is_in_the_url() -> None:
    access, index = access_of(
        "opensearch+https://ann:p%40ss@search.example:9201/behind/proxy/notes?ca=/etc/ca.pem&verify=no&timeout=5"
    )
    assert (access.url, index) == ("https://search.example:9201/behind/proxy", "notes")
    assert (access.username, access.password, access.ca) == ("ann", "p@ss", "/etc/ca.pem")
    assert (access.verify, access.timeout) == (False, 5.0)
    assert "p@ss" not in repr(access)
    assert access_of("elasticsearch+http://host/notes")[0].url == "http://host:9200"
    assert access_of("elasticsearch+https://[::1]:9200/notes?api_key=a%3D")[0].url == "https://[::1]:9200"
    assert isinstance(sink_from_url("elasticsearch+http://host/notes"), Elasticsearch)


@pytest.mark.parametrize(
    "url",
    [
        "opensearch+http://ann:hunter2@host:9200",
        "opensearch+http://ann:hunter2@host:9200/Notes",
        "opensearch+http://ann:hunter2@host:9200/notes?tiemout=1",
        "opensearch+http://ann:hunter2@host:9200/notes?timeout=soon",
        "opensearch+http://ann:hunter2@host:92000/notes",
        "opensearch+http:///notes",
    ],
)
def test_what_cannot_be_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sink_from_url(url)
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


def test_an_answer_for_fewer_documents_says_nothing() -> None:
    with pytest.raises(ConnectionError, match="2 documents has 1 items"):
        verdicts({"items": [{"index": {"status": 200}}]}, 2)
    with pytest.raises(ConnectionError, match="has no items"):
        verdicts({}, 1)


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (400, "mapper_parsing_exception", Failed),
        (403, "cluster_block_exception", Retry),
        (400, "index_closed_exception", Retry),
        (403, "security_exception", Retry),
        (429, "es_rejected_execution_exception", Retry),
        (500, "", Retry),
        (0, "", Retry),
    ],
)
def test_each_item_has_its_verdict(status: int, kind: str, expected: type) -> None:
    said = {"status": status, "error": {"type": kind, "reason": "so it is"}}
    [found, fine] = verdicts({"items": [{"index": said}, {"delete": {"status": 404}}]}, 2)
    assert isinstance(found, expected)
    assert fine == Done()


def test_pages_of_proxies_are_read_too() -> None:
    error = refused(502, "<html>" + "x" * 1000, {"retry-after": "7"})
    assert all_of(error) == Retry("http_5xx", str(error), 7.0, whole=True)
    assert len(str(error)) < 300
    assert all_of(Refused(404, "index_not_found_exception", "no such index [x]")).reason == "unavailable"


def test_a_worker_imports_the_client_before_it_claims(tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/redrive.db", elastic_url="opensearch+http://host:9200?timeout=5")
    app.outbox.projection("notes", sink="elasticsearch+http://host/notes")
    assert "redrive.outbox.sinks.elasticsearch" in named(app.registry, ["outbox:notes"])


def test_the_built_in_projection_takes_options_of_its_url(tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/redrive.db", elastic_url="opensearch+http://host:9200/?timeout=5")
    built_in = "search_index_to_elastic"
    assert app.of(Outbox).built_in_url() == "opensearch+http://host:9200/search?timeout=5"
    assert "redrive.outbox.sinks.opensearch" in named(app.registry, [f"outbox:{built_in}"])


def test_an_unfit_url_stops_nobody_who_does_not_use_it(tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/redrive.db", elastic_url="host:9200")
    assert "outbox:search_index_to_elastic" in app.queues()


@pytest.mark.parametrize("wrong", ["nohost", "127.0.0.1:9200", "ftp://x:1", "http://", "://x"])
def test_who_uses_an_unfit_url_is_told_which(tmp_path: Path, wrong: str) -> None:
    app = make_app(f"sqlite:///{tmp_path}/redrive.db", elastic_url=wrong)
    with pytest.raises(ConfigError, match="ELASTIC_URL is no address of a search server"):
        app.outbox.projections["search_index_to_elastic"].make()


def test_each_event_loop_has_its_own_client() -> None:
    """An application's own loop, and that of its blocking calls, may use one sink."""
    with serving(SearchSimulator(SearchBehaviour())) as address:
        sink = OpenSearch(f"opensearch+{address}/notes")

        async def write(version: int) -> Any:
            return await sink.write([upsert(1, version)])

        with asyncio.Runner() as first, asyncio.Runner() as second:
            assert first.run(write(1)) == second.run(write(2)) == first.run(write(3)) == [Done()]
            first.run(sink.close())
            assert second.run(write(4)) == [Done()]
            second.run(sink.close())
