"""Sinks that can be stopped, started and slowed down: our own search server, or a real one behind a forwarder."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from redrive.errors import ConfigError, InvalidInput
from redrive.outbox.sink import Rebuildable
from redrive.outbox.sinks import sink_from_url
from redrive.outbox.sinks.search_index import FIRST
from redrive_kit.labs.network import Forwarder, ask, keep_port
from redrive_kit.labs.processes import Program

ANSWERS_WITHIN_S = 60.0


class LabSink(ABC):
    """A search server for one experiment. ``url`` is what a projection gets as its sink."""

    shown: str  # what it is, for the record
    url: str

    @abstractmethod
    async def start(self) -> None:
        """Lets it be reached; at the same address as before."""

    @abstractmethod
    async def stop(self) -> None:
        """Makes it refuse connections."""

    @abstractmethod
    async def slow(self, seconds: float) -> None:
        """Makes each request from now on take about so long; 0 ends that."""

    @abstractmethod
    async def close(self) -> None:
        """Ends it, and removes what the experiment has put there."""

    async def versions(self) -> dict[str, int]:
        """Returns the version of each document that it has."""
        sink = sink_from_url(self.url)
        assert isinstance(sink, Rebuildable)
        try:
            await sink.refresh()
            return {one.key: one.version async for one in sink.scan()}
        finally:
            await sink.close()


class SimulatedSink(LabSink):
    """``python -m redrive_kit.simulators.search``, a process of its own. Its documents outlive it."""

    shown = "search server of redrive (python -m redrive_kit.simulators.search)"
    _kept: socket.socket | None = None

    def __init__(self, directory: Path, index: str) -> None:
        self._directory = directory
        self._index = index
        self._port = 0
        self._process: Program | None = None
        self._product = _installed_client()
        self.url = ""

    async def start(self) -> None:
        if self._kept is None:
            self._kept = keep_port()
            self._port = self._kept.getsockname()[1]
        arguments = [
            "redrive_kit.simulators.search",
            "--port",
            str(self._port),
            "--keep",
            str(self._directory / "sink.db"),
        ]
        arguments += ["--like", json.dumps({"product": self._product}), "--while-heard"]
        log = self._directory / "sink.log"
        process = self._process = Program("sink", arguments, os.environ, log, talks=True)
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            said = await asyncio.to_thread(process.hear)
        if not said:
            raise RuntimeError(f"the search server did not start: {log.read_text(errors='replace')[-500:]}")
        address = json.loads(said)["url"]
        self.url = f"{self._product}+{address}/{self._index}"
        await _until_answers(address)

    async def stop(self) -> None:
        if self._process is not None:
            await asyncio.to_thread(self._process.kill)
            self._process = None

    async def slow(self, seconds: float) -> None:
        await self.behave({"latency": seconds})

    async def behave(self, how: Mapping[str, Any]) -> None:
        """Makes it behave otherwise from now on: see ``redrive_kit.simulators.search.server``."""
        await ask(f"http://127.0.0.1:{self._port}/_simulator/control", how)

    async def requests(self) -> int:
        """Returns how many bulk requests have reached it since it was started."""
        said = await ask(f"http://127.0.0.1:{self._port}/_simulator/seen")
        return int(said.json().get("bulk", 0))

    async def close(self) -> None:
        await self.stop()
        if self._kept is not None:
            self._kept.close()
            self._kept = None


class ForwardedSink(LabSink):
    """A real server, which is not ours to stop: it is reached through a forwarder that is."""

    def __init__(self, given: str, index: str) -> None:
        """``given``: ``http://host:9200``, or with the client to use: ``opensearch+http://host:9200``."""
        client, plus, rest = given.rstrip("/").partition("+")
        self._at: SplitResult = urlsplit(rest if plus else given.rstrip("/"))
        if self._at.scheme not in ("http", "https") or not self._at.hostname:
            raise InvalidInput(
                f"{given.partition('://')[0]}:// is no address of a search server",
                hint="--sink http://127.0.0.1:9200, or opensearch+https://user:password@host:9200",
            )
        self._client = client if plus else ""
        self._login = self._at.netloc.rpartition("@")[0]
        self._index = index
        tls = self._at.scheme == "https"
        self._forwarder = Forwarder(self._at.hostname, self._at.port or (443 if tls else 80), tls=tls)
        self.shown = f"{self._at.hostname}:{self._at.port}, through a forwarder"
        self.url = ""

    async def start(self) -> None:
        await self._forwarder.start()
        address = f"127.0.0.1:{self._forwarder.port}"
        self._client = self._client or await self._product(address)
        login = f"{self._login}@" if self._login else ""
        self.url = f"{self._client}+http://{login}{address}/{self._index}"

    async def _product(self, address: str) -> str:
        """Returns whose server it is, by what it says."""
        said = await ask(f"http://{address}/", login=unquote(self._login) or None)
        if said.status == 0:
            raise InvalidInput(f"the sink at {self._at.hostname}:{self._at.port} does not answer")
        with suppress(ValueError, AttributeError):
            if said.json().get("version", {}).get("distribution") == "opensearch":
                return "opensearch"
        return "elasticsearch" if find_spec("elasticsearch") is not None else "opensearch"

    async def stop(self) -> None:
        await self._forwarder.stop()

    async def slow(self, seconds: float) -> None:
        self._forwarder.delay = seconds

    async def close(self) -> None:
        self._forwarder.delay = 0.0
        await self._forwarder.stop()
        if self.url:
            await self._forwarder.start()
            where = f"http://127.0.0.1:{self._forwarder.port}/{self._index}-{FIRST}"
            await ask(where, method="DELETE", login=unquote(self._login) or None)
        await self._forwarder.close()


def _installed_client() -> str:
    for client, module in (("opensearch", "opensearchpy"), ("elasticsearch", "elasticsearch")):
        if find_spec(module) is not None:
            return client
    raise ConfigError("labs need a client of a search server", hint="pip install 'redrive-kit[labs]'")


async def _until_answers(address: str) -> None:
    """Waits until requests are answered: it says its address a moment before."""
    async with asyncio.timeout(ANSWERS_WITHIN_S):
        while (await ask(f"{address}/_simulator/control")).status != 200:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.05)
