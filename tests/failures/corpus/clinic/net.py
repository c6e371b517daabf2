"""What the clinic asks over the network."""

import asyncio
import http.client
import socket
import ssl

import aiohttp
import asyncpg
import httpx
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

ONCE = Retry(NoBackoff(), 0)


def poll_lab(url):
    async def get():
        timeout = aiohttp.ClientTimeout(total=0.15)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            answer.raise_for_status()
            return await answer.json()

    return asyncio.run(get())


def sync_calendar(url):
    async def get():
        async with aiohttp.ClientSession() as session:
            return await (await session.get(url)).json()

    return asyncio.run(get())


def secure(url):
    return httpx.get(url, timeout=1)


def handshake(port):
    with socket.create_connection(("127.0.0.1", port), timeout=1) as plain:
        return ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")


def look_up(port, key):
    with redis.Redis(port=port, protocol=2, socket_timeout=0.15, retry=ONCE) as cache:
        return cache.get(key)


def lookup_host(name):
    # Numbers only: a name is refused by the resolver itself, without asking anybody.
    return socket.getaddrinfo(name, 443, flags=socket.AI_NUMERICHOST)


def raw(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", path)
        return connection.getresponse()
    finally:
        connection.close()


def patients(url, sql, *args):
    async def run():
        connection = await asyncpg.connect(url, timeout=2)
        try:
            await connection.execute("create table if not exists patient (id int primary key, name text)")
            await connection.execute("insert into patient values (1, 'first') on conflict do nothing")
            return await connection.fetch(sql, *args)
        finally:
            await connection.close()

    return asyncio.run(run())


def beds(url):
    async def run():
        return await asyncpg.connect(url, timeout=2)

    return asyncio.run(run())


def hurry(seconds):
    async def run():
        await asyncio.wait_for(asyncio.sleep(seconds + 10), 0.01)

    return asyncio.run(run())
