"""A service that goes down and comes back: worker processes leave it alone meanwhile, and lose nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.faults.harness import World, until

pytestmark = pytest.mark.faults
TASKS = 60


class Flaky(ThreadingHTTPServer):
    """A real HTTP server that answers 503 while it is down, and counts who came then."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.down = True
        self.refused = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Flaky)
        with server.lock:
            down = server.down
            server.refused += down
        self.send_response(503 if down else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def flaky() -> Iterator[Flaky]:
    server = Flaky()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_an_outage_uses_no_attempts_and_few_probes(store: World, flaky: Flaky) -> None:
    workers = [store.worker(name, concurrency=4) for name in ("first", "second")]
    ids = store.enqueue_many("CALL", TASKS, payload={"url": flaky.url})
    others = store.enqueue_many("QUICK", 10)

    def told(event: str) -> int:
        return sum(len(worker.logged(event)) for worker in workers)

    until(lambda: told("circuit.opened"), "the circuit is open")
    store.wait_completed(others)
    until(lambda: told("circuit.probe_failed") >= 3, "three probes have failed")
    with flaky.lock:
        flaky.down = False
        refused = flaky.refused
    store.wait_completed(ids)
    assert store.account([*ids, *others]) == {"completed": TASKS + 10}, (
        "none has failed, though each had three attempts"
    )
    # Those in a row of both workers, what was under way, and the probes.
    assert refused <= 2 * 3 + 2 * 4 + told("circuit.probe_failed") + 1
    assert told("circuit.opened") == 1
    assert told("circuit.closed") == 1
    assert told("task.failed") == 0
