"""Answers that a provider sends packed: little that would become much is refused before it does."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib

import pytest

from redrive.remote import RemoteItem
from tests.remote.conftest import Server
from tests.remote.test_http import fails, provider

ITEM = RemoteItem("i1", {"text": "a cat"})
MB = 2**20


def zeros(megabytes: int) -> bytes:
    """Returns so many zeros, packed, without ever having them."""
    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(packing.compress(bytes(MB)) for _ in range(megabytes)), packing.flush()])


async def test_answers_are_asked_for_unpacked(server: Server) -> None:
    server.always({"id": "j1"})
    video = provider(server)
    await video.start(ITEM, "k")
    assert server.asked[0].headers["accept-encoding"] == "identity"
    await video.close()


async def test_gzip_that_comes_all_the_same_is_read(server: Server) -> None:
    server.always(gzip.compress(json.dumps({"id": "j1"}).encode()), Content_Encoding="gzip")
    video = provider(server)
    assert await video.start(ITEM, "k") == "j1"
    await video.close()


@pytest.mark.parametrize(("encoding", "layers"), [("gzip", 1), ("gzip, gzip", 2), ("deflate", 1), ("br", 1)])
async def test_a_bomb_is_refused_and_never_unpacked(server: Server, encoding: str, layers: int) -> None:
    content = zeros(64)
    server.always(gzip.compress(content) if layers == 2 else content, Content_Encoding=encoding)
    video = provider(server, max_answer_bytes=MB)
    tracemalloc.start()
    try:
        error = await fails(video.start(ITEM, "k"))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.reason == "provider_answer" and ("more than" in str(error) or "not asked for" in str(error))
    assert most < 16 * MB, "64 MB were in there"
    await video.close()


@pytest.mark.parametrize(
    "content", [b"no gzip at all", gzip.compress(b'{"id": "j1"}', mtime=0)[:-9]], ids=["none", "cut"]
)
async def test_gzip_that_is_broken_is_nonsense(server: Server, content: bytes) -> None:
    server.always(content, Content_Encoding="gzip")
    video = provider(server)
    assert (await fails(video.start(ITEM, "k"))).reason == "provider_answer"
    await video.close()


async def test_the_status_counts_also_where_its_page_cannot_be_unpacked(server: Server) -> None:
    server.always(zeros(64), 503, Content_Encoding="br")
    video = provider(server)
    assert (await fails(video.start(ITEM, "k"))).status_code == 503
    server.always(gzip.compress(b'{"error": "come back later"}'), 503, Content_Encoding="gzip")
    assert "come back later" in str(await fails(video.start(ITEM, "k")))
    await video.close()
