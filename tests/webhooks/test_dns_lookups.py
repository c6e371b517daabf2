"""Customers whose name servers are silent hold up nobody else."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from redrive import App
from redrive.webhooks.delivery_attempt import post
from redrive.webhooks.dns_lookups import MOST_AT_ONCE, MOST_HANGING_OF_ONE, LookupHangs, Lookups
from redrive.webhooks.settings import WebhookSettings
from tests.webhooks.conftest import deliveries, make_app
from tests.webhooks.receiver import Receiver
from tests.worker.conftest import until

pytestmark = pytest.mark.anyio


class NameServers:
    """Silent about names that end with .silent, until they are let go; others are looked up really."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.let_go = threading.Event()
        self._real = socket.getaddrinfo

    def getaddrinfo(self, host: Any, port: Any, *how: int, **named: int) -> list[Any]:
        if isinstance(host, str) and host.endswith(".silent") and not named.get("flags"):
            self.asked.append(host)
            self.let_go.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return self._real(host, port, *how, **named)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServers]:
    own = NameServers()
    monkeypatch.setattr(socket, "getaddrinfo", own.getaddrinfo)
    yield own
    own.let_go.set()


async def test_the_deliveries_of_others_go_out_meanwhile(
    app_url: str, receiver: Receiver, servers: NameServers
) -> None:
    app = make_app(app_url, timeout_ms=30_000)
    await app.migrate()
    await app.webhooks.add("http://hooks.silent/", account="bad", events=["a.*"])
    await app.webhooks.add(receiver.url(), account="good", events=["a.*"])
    for n in range(8):
        await app.webhooks.send("a.b", {"n": n}, account="bad")
    for n in range(5):
        await app.webhooks.send("a.b", {"n": n}, account="good")
    async with app.worker(queues="webhooks", concurrency=20, sleep=0.05):
        await until(lambda: _all_good(app))
        assert servers.asked == ["hooks.silent"] and not servers.let_go.is_set(), "all wait for one thread"
        servers.let_go.set()
    assert {len(one.attempts) for one in await _of(app, "good")} == {1}, "none of their tries was used up"
    await app.close()


async def _of(app: App, account: str) -> list[Any]:
    own = await deliveries(app)
    return [await own.show(one.id) for one in (await own.list(account=account)).items]


async def _all_good(app: App) -> bool:
    return {one.state for one in await _of(app, "good")} == {"completed"}


async def test_addresses_need_neither_thread_nor_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda _: pytest.fail("a thread was begun"))
    own = Lookups(room=asyncio.Semaphore(0))
    for host, address in {"8.8.8.8": "8.8.8.8", "127.1": "127.0.0.1", "0x7f000001": "127.0.0.1", "::1": "::1"}.items():
        assert await (await own.begin(host)).addresses() == [address]


async def test_a_name_that_hangs_fails_at_once_until_it_is_answered(servers: NameServers) -> None:
    own = Lookups(give_up_s=0.05)
    first, second = await own.begin("a.silent"), await own.begin("a.silent")
    assert first is second
    with pytest.raises(LookupHangs, match="name servers have not answered"):
        await first.addresses()
    with pytest.raises(LookupHangs):
        await own.begin("a.silent")
    assert servers.asked == ["a.silent"]
    servers.let_go.set()
    await until(lambda: _gone(own, "a.silent"))
    with pytest.raises(socket.gaierror):
        await (await own.begin("a.silent")).addresses()


async def _gone(own: Lookups, host: str) -> bool:
    return host not in own.by_host


async def test_one_customer_with_many_silent_names_has_few_threads(servers: NameServers) -> None:
    own = Lookups(give_up_s=0.05)
    for n in range(MOST_HANGING_OF_ONE):
        with pytest.raises(LookupHangs):
            await (await own.begin(f"{n}.silent", "bad")).addresses()
    with pytest.raises(LookupHangs, match="too many"):
        await own.begin("one-more.silent", "bad")
    assert await (await own.begin("localhost", "good")).addresses()
    assert own.room._value == MOST_AT_ONCE, "those that hang take nobody's place"


async def test_waiting_for_a_thread_is_not_the_receivers_time(
    receiver: Receiver, servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one place is taken by a silent name for longer than the receiver would have been given."""
    own = Lookups(room=asyncio.Semaphore(1), give_up_s=1.5)
    monkeypatch.setattr("redrive.webhooks.delivery_attempt.lookups", lambda: own)
    settings = WebhookSettings(allow_networks=["127.0.0.0/8", "::1/128"], timeout_ms=1000)
    bad = asyncio.create_task(post("http://a.silent/", b"{}", {}, settings))
    await until(lambda: _begun(servers))
    good = await post(receiver.url(host="localhost"), b"{}", {}, settings)
    assert good.outcome == "delivered" and (await bad).outcome == "dns"


async def _begun(servers: NameServers) -> bool:
    return bool(servers.asked)


async def test_a_thread_that_cannot_be_had_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    answer = await post("http://hooks.example/", b"{}", {}, WebhookSettings())
    assert answer.outcome == "dns" and "can't start new thread" in (answer.error or "")
