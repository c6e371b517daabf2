"""The example of the outbox: notes that can be searched a moment after they were written.

    redrive up --app redrive_kit.examples.notes:app --demo

The demo starts the service of notes beside the worker that projects them:

    curl 127.0.0.1:8340                                          # what can be done
    curl 127.0.0.1:8340/notes -d '{"title": "Milk", "text": "Two bottles, and bread"}'
    curl '127.0.0.1:8340/search?q=bread'

Rows and events are one transaction (``notes_table``). The projection is the built-in one: full text in a file next to
the store, or the search server of ``ELASTIC_URL``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redrive import App
from redrive.outbox.event import key_of
from redrive.outbox.source import Record
from redrive_kit.examples.notes_table import ENTITY, Note, Notes, notes_of

PROJECTION = "search_index_to_elastic"
PORT = int(os.environ.get("NOTES_PORT", "8340"))
# Commands that ``redrive up`` proposes.
LOOK = (
    f"curl http://127.0.0.1:{PORT}",  # says what can be done
    f"outbox load --api-base http://127.0.0.1:{PORT} --total 300",
    "outbox list",
    "outbox search bread",
    f"outbox verify {PROJECTION} --app redrive_kit.examples.notes:app",
    "doctor",
)

app = App(name="notes")


@app.outbox.source(PROJECTION)
class NotesSource:
    """Reads notes for ``redrive outbox rebuild`` and ``verify``, in the order of their keys."""

    async def scan(self, after: str, limit: int) -> Sequence[Record]:
        prefix = key_of(ENTITY, "")
        if after > prefix and not after.startswith(prefix):
            return []  # behind all keys of notes
        place = after.removeprefix(prefix) if after.startswith(prefix) else ""
        async with opened() as notes:
            return [_record(note) for note in await notes.page(place, limit)]

    async def fetch(self, keys: Sequence[str]) -> Sequence[Record]:
        async with opened() as notes:
            found = [await notes.get(key.removeprefix(key_of(ENTITY, ""))) for key in keys]
        return [_record(note) for note in found if note is not None]


@asynccontextmanager
async def opened() -> AsyncIterator[Notes]:
    """Opens the notes within the block."""
    notes = notes_of(app.url, PROJECTION)
    await notes.open()
    try:
        yield notes
    finally:
        await notes.close()


def _record(note: Note) -> Record:
    return Record(ENTITY, note.id, note.version, note.document())


async def demo() -> None:
    """Begins the service in a thread that ends with this process; unless its port is taken, as by that of another
    start."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", PORT))
    except OSError:
        listening.close()
        taken = "port %s is taken, perhaps by another start: no notes are served here; set NOTES_PORT to another"
        logging.getLogger("redrive_kit.examples").warning(taken, PORT)
        return
    threading.Thread(target=serve, args=(listening,), daemon=True).start()


def serve(listening: socket.socket) -> None:
    """Serves notes until the process ends."""
    import uvicorn

    from redrive_kit.examples.notes_service import make_service

    service = make_service(app.outbox.projections[PROJECTION], _served)
    config = uvicorn.Config(service, log_config=None, log_level="critical", access_log=False, lifespan="on")
    uvicorn.Server(config).run(sockets=[listening])


@asynccontextmanager
async def _served(service: Any) -> AsyncIterator[None]:
    await app.migrate()
    async with opened() as notes:
        service.state.notes = notes
        yield


def main() -> int:
    """Runs the service alone: a worker of ``redrive outbox work --app redrive_kit.examples.notes:app`` projects what it
    writes. The first line that it prints is JSON with its address."""
    parser = argparse.ArgumentParser(prog="python -m redrive_kit.examples.notes", description=main.__doc__)
    parser.add_argument("--port", type=int, default=PORT, help=f"{PORT} by default; 0 takes any free one")
    given = parser.parse_args()
    with socket.create_server(("127.0.0.1", given.port)) as listening:
        sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"}) + "\n")
        sys.stdout.flush()
        serve(listening)
    return 0


if __name__ == "__main__":
    sys.exit(main())
