"""Connections to many addresses that nobody answers at: what the clients people use really say of each."""

from __future__ import annotations

from typing import Any

from tests.failures.corpus.collect import Cause

CAUSES: list[Cause] = []


def address(s: Any) -> str:
    """One of millions: all of 127.0.0.0/8 is this host, and nobody listens on most of it."""
    return f"127.{s.v(1, 250)}.{s.v(1, 250)}.{s.v(1, 250)}"


def cause(name: str, call: Any) -> None:
    CAUSES.append(Cause(name, call))


cause("asyncio, many addresses", lambda s: s.depot_peers.greet(address(s), 7411))
cause("asyncio, many addresses, another service", lambda s: s.depot_peers.greet(address(s), 7412))
cause("asyncio, many addresses, another caller", lambda s: s.depot_peers.gossip(address(s), 7411))
cause("socket, many addresses", lambda s: s.depot_peers.knock(address(s), 7411))
cause("socket, passing ports", lambda s: s.depot_peers.knock(address(s), s.v(40_000, 60_000)))
cause("psycopg, many addresses", lambda s: s.depot_peers.count_shards(address(s), 7432))
cause("redis, many addresses", lambda s: s.depot_peers.forget_key(address(s), 7379))
cause("redis, loop, many addresses", lambda s: s.depot_peers.forget_key_soon(address(s), 7380))
cause("httpx, many addresses", lambda s: s.depot_peers.poll_agent(f"http://{address(s)}:7480/{s.v.path()}"))
cause("httpx, loop, many addresses", lambda s: s.depot_peers.poll_agents([f"http://{address(s)}:7480/{s.v.path()}"]))
cause("httpx, by name", lambda s: s.depot_peers.poll_agent(f"http://agents.invalid:7480/{s.v.path()}"))
cause("httpx, by another name", lambda s: s.depot_peers.poll_agent(f"http://others.invalid:7480/{s.v.path()}"))
