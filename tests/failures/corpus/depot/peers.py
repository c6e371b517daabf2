"""Calls of machines by their addresses, by the clients people use."""

import asyncio
import socket

import httpx
import psycopg
import redis
import redis.asyncio
import redis.asyncio.retry
import redis.backoff
import redis.retry

ONCE = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
SOON_ONCE = redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0)


def greet(host, port):
    async def hello():
        _, writer = await asyncio.open_connection(host, port)
        writer.close()

    asyncio.run(hello())


def gossip(host, port):
    async def say():
        await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, port)

    asyncio.run(say())


def knock(host, port):
    with socket.create_connection((host, port), timeout=1):
        pass


def count_shards(host, port):
    with psycopg.connect(f"host={host} port={port} dbname=shards user=u connect_timeout=2") as connection:
        return connection.execute("select count(*) from shard").fetchone()


def forget_key(host, port):
    redis.Redis(host=host, port=port, retry=ONCE).delete("k")


def forget_key_soon(host, port):
    async def forget():
        client = redis.asyncio.Redis(host=host, port=port, retry=SOON_ONCE)
        try:
            await client.delete("k")
        finally:
            await client.aclose()

    asyncio.run(forget())


def poll_agent(url):
    return httpx.get(url, timeout=2).json()


def poll_agents(urls):
    async def poll():
        async with httpx.AsyncClient(timeout=2) as client:
            return [await client.get(url) for url in urls]

    return asyncio.run(poll())
