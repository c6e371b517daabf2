"""The search server of a run: one that was named, a real OpenSearch, or our own. Which one is said in the summary."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from tools.opensearch.node import Node

from redrive_kit.simulators.search.server import SearchBehaviour, SearchSimulator

NAMED = "REDRIVE_TEST_ELASTICSEARCH_URL"
REAL = "REDRIVE_TEST_OPENSEARCH"
# What tools/opensearch/opensearch.yml says, so that both meet a 413 at the same size.
MAX_BYTES = 2 * 1024 * 1024


@dataclass(slots=True)
class SearchServerOfRun:
    url: str
    product: str
    simulator: SearchSimulator | None = None
    limited: bool = True  # refuses more than MAX_BYTES

    def sink_url(self, alias: str) -> str:
        return f"{self.product}+{self.url}/{alias}"


def what() -> str:
    """Returns which server the run has, for its summary."""
    if os.environ.get(NAMED):
        return f"the server that {NAMED} names"
    if os.environ.get(REAL):
        return "a real OpenSearch (tools/opensearch)"
    return f"our own server; {REAL}=1 takes a real OpenSearch"


@contextmanager
def server_of_run(product: str) -> Iterator[SearchServerOfRun | None]:
    """Yields a server for the client of a product; None: the run's server is the other one."""
    if named := os.environ.get(NAMED):
        found = _product(named)
        yield SearchServerOfRun(named.rstrip("/"), product, limited=False) if found == product else None
    elif os.environ.get(REAL):
        yield SearchServerOfRun(Node().start(), product) if product == "opensearch" else None
    else:
        simulator = SearchSimulator(SearchBehaviour(product=product, max_bytes=MAX_BYTES))
        with serving(simulator) as url:
            yield SearchServerOfRun(url, product, simulator)


def _product(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(json.loads(answer.read())["version"].get("distribution", "elasticsearch"))


@contextmanager
def serving(simulator: SearchSimulator, **tls: Any) -> Iterator[str]:
    """Serves from a thread, over real HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            simulator.app(), log_config=None, log_level="critical", lifespan="off", timeout_graceful_shutdown=1, **tls
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()
    simulator.documents.close()
