"""What two safeguards cost, each as a ratio in one run: ``python -m bench.ratios [starts] [lives]``.

``starts``: that an item is about to be started is in the store before its request goes out, in a transaction of its
own. Batches at a provider that answers at once are worked through with and without it, in turn.
``lives``: a trigger keeps lives of deleted keys. Tasks of any kind and events are inserted with and without it, in
turn. What is compared is CPU time, of this process and of the server: what else the machine does is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import Sequence
from typing import Any

import psutil

from bench.servers import Servers, servers
from redrive import App
from redrive.batches.remote import in_flight, item_handler
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.settings import BatchSettings
from redrive.outbox.application import Outbox
from redrive.remote import RemoteItem, Status
from redrive.settings import load_settings

ITEMS, EVENTS, ROUNDS = 1_000, 2_000, 5
BACKENDS = ("sqlite", "postgres")


class AtOnce:
    """A provider whose jobs have ended when they are started."""

    max_poll = 100

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        return idempotency_key

    async def poll(self, ids: Sequence[str]) -> dict[str, Status]:
        return {one: Status.succeeded() for one in ids}


def _spent(made: Servers, backend: str) -> float:
    """Returns the seconds of CPU that were used so far, here and by the server."""
    spent = time.process_time()
    for process in made.processes(backend):
        with contextlib.suppress(psutil.NoSuchProcess):  # one that has ended is among the children of its parent
            one = process.cpu_times()
            spent += one.user + one.system + one.children_user + one.children_system
    return spent


async def starts(made: Servers, backend: str) -> None:
    """Prints what noting starts costs."""
    quick = BatchSettings(poll_first=0.0, poll_next=0.0, poll_later=0.0)
    app = App(settings=load_settings(url=await made.fresh(backend, "starts"), log_format="off").holding(quick))
    app.provider("quick", AtOnce())
    await app.migrate()
    noted, took = in_flight.take_places, dict[str, list[float]]()

    async def unnoted(store: Any, provider: str, most: int | None, starts: Any, *, bounded: bool) -> set[Any]:
        return {(one.batch, one.n) for one in starts}

    try:
        for round_ in range(ROUNDS + 1):
            for name, way in (("without", unnoted), ("with", noted))[:: -1 if round_ % 2 else 1]:
                item_handler.take_places = way  # type: ignore[attr-defined]
                began = _spent(made, backend)
                await app.of(RemoteBatches).create([{"n": n} for n in range(ITEMS)], provider="quick")
                await app.worker(queues=",".join(app.queues()), stop_when_empty=True).run()
                if round_:  # the first of each warms up
                    took.setdefault(name, []).append(_spent(made, backend) - began)
    finally:
        item_handler.take_places = noted  # type: ignore[attr-defined]
        await app.close()
    _say(f"starts, {backend}: {ITEMS:,} items", took, ITEMS)


TRIGGERS = {
    "sqlite": ("redrive_outbox_life_first", "redrive_outbox_life_of_event"),
    "postgres": ("outbox_life",),
}


async def lives(made: Servers, backend: str) -> None:
    """Prints what keeping lives costs whoever enqueues, and whoever publishes."""
    url = await made.fresh(backend, "lives")
    app = App(settings=load_settings(url=url, log_format="off"))
    app.of(Outbox).projection("notes", f"fts5://{made.directory}/notes.db")
    app.declare("NOTHING")
    await app.migrate()
    await app.enqueue("NOTHING", {})
    took: dict[str, dict[str, list[float]]] = {"tasks": {}, "events": {}, "deletes": {}}
    for round_ in range(4 * ROUNDS + 1):
        for name in ("without", "with")[:: -1 if round_ % 2 else 1]:
            await _switch(made, backend, url, on=name == "with")
            for what, spent in took.items():
                began = _spent(made, backend)
                await _insert(app, what, [f"{round_}-{name}-{n}" for n in range(EVENTS)])
                if round_:
                    spent.setdefault(name, []).append(_spent(made, backend) - began)
    await app.close()
    for what, spent in took.items():
        _say(f"lives, {backend}: {EVENTS:,} {what}", spent, EVENTS)


async def _insert(app: App, what: str, keys: Sequence[str]) -> None:
    if what == "tasks":
        await app.enqueue_many([("NOTHING", {"key": key}) for key in keys])
        return
    rows: list[tuple[Any, ...]] = [("note", key, "upsert", 1, {"title": key}) for key in keys]
    if what == "deletes":
        rows = [("note", key, "delete", 2, None) for key in keys]
    await app.of(Outbox).publish_many(None, "notes", rows)


_texts: dict[str, str] = {}


async def _switch(made: Servers, backend: str, url: str, *, on: bool) -> None:
    """Turns the triggers on or off, behind the back of the application."""
    if backend == "postgres":
        import asyncpg

        connection = await asyncpg.connect(url)
        await connection.execute(f"alter table redrive.task {'enable' if on else 'disable'} trigger outbox_life")
        await connection.close()
        return
    import sqlite3

    with sqlite3.connect(url.removeprefix("sqlite:///")) as file:
        for name in TRIGGERS["sqlite"]:
            row = file.execute("select sql from sqlite_master where type = 'trigger' and name = ?", (name,)).fetchone()
            if row is not None:
                _texts[name] = row[0]
            if on and row is None:
                file.execute(_texts[name])
            elif not on and row is not None:
                file.execute(f"drop trigger {name}")
    file.close()


def _say(what: str, took: dict[str, list[float]], number: int) -> None:
    without, with_ = (statistics.median(took[name]) for name in ("without", "with"))
    shares = sorted(a / b for a, b in zip(took["with"], took["without"], strict=True))
    spread = f"{shares[0]:.2f} to {shares[-1]:.2f}"
    each = f"{1e6 * without / number:,.0f} µs of CPU each without, {1e6 * with_ / number:,.0f} with"
    print(f"{what}: {each}: {with_ / without:.2f} times as much ({spread})", flush=True)


async def main(chosen: Sequence[str]) -> None:
    with servers() as made:
        for backend in BACKENDS:
            for name in chosen or ("starts", "lives"):
                await {"starts": starts, "lives": lives}[name](made, backend)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("chosen", nargs="*", choices=("starts", "lives", []))
    asyncio.run(main(parser.parse_args().chosen))
