"""Writes down which handlers harm others (those that hold the event loop, those that run on when given up), and which
are missing here."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby

from redrive.errors import RedriveError
from redrive.kernel.commit import Commit
from redrive.kernel.handler_notes import (
    BLOCKED_COLLECTION,
    STRAY_COLLECTION,
    UNHANDLED_COLLECTION,
    LoopBlock,
    Stray,
    Unhandled,
    add_blocks,
    stray_over,
)
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.worker.run import Run

MOST_PENDING = 100  # while the store is away


class HandlerNotes:
    """Gathers notes, and writes them with the worker's heartbeats. They are for looking: what cannot be written is
    tried again with the next heartbeat, and forgotten with the worker."""

    def __init__(self, store: Store, worker_id: str) -> None:
        self._store = store
        self._worker_id = worker_id
        self._blocks: deque[LoopBlock] = deque(maxlen=MOST_PENDING)
        self._begun: dict[str, Stray] = {}
        self._written: set[str] = set()
        self._ended: set[str] = set()
        self._unhandled: dict[str, Unhandled] = {}

    def blocked(self, block: LoopBlock) -> None:
        """Notes that a handler has held the loop."""
        self._blocks.append(block)

    def unhandled(self, kind: str) -> None:
        """Notes that a task of a feature was handed back, since nobody here handles its kind."""
        self._unhandled[kind] = Unhandled(kind, self._worker_id, datetime.now(UTC).isoformat())

    def stray(self, run: Run) -> None:
        """Notes that a handler runs on without its task."""
        task, isolation = run.task, "" if run.handler is None else run.handler.isolation.value
        if len(self._begun) < MOST_PENDING:
            now = datetime.now(UTC).isoformat()
            self._begun[str(task.token)] = Stray(str(task.id), task.kind, self._worker_id, now, isolation)

    def ended(self, run: Run) -> None:
        """Notes that such a handler has ended after all."""
        token = str(run.task.token)
        if token in self._written:
            self._ended.add(token)
        self._begun.pop(token, None)

    async def write(self) -> None:
        """Writes what there is to write."""
        if not (self._blocks or self._begun or self._ended or self._unhandled):
            return
        blocks, begun, ended = list(self._blocks), dict(self._begun), set(self._ended)
        unhandled, self._unhandled = self._unhandled, {}  # each comes again while it is true
        try:
            puts = [*await self._of_blocks(blocks), *await self._of_ended(ended), *await self._of_unhandled(unhandled)]
            puts += [stray.put(token) for token, stray in begun.items()]
            await self._store.apply(Commit(puts=puts))
        except RedriveError:  # also another worker that has written the same kind first
            return
        for _ in blocks:
            self._blocks.popleft()
        self._written |= begun.keys()
        self._written -= ended
        self._ended -= ended
        for token in begun:
            if self._begun.pop(token, None) is None:  # it has ended meanwhile
                self._ended.add(token)

    async def leave(self) -> None:
        """Writes that nothing runs on: the process ends, or is somebody else's to look after."""
        self._begun.clear()
        self._ended |= self._written
        await self.write()

    async def _of_blocks(self, blocks: Sequence[LoopBlock]) -> list[Put]:
        ordered = sorted(blocks, key=lambda block: block.kind)
        by_kind = {kind: list(found) for kind, found in groupby(ordered, lambda block: block.kind)}
        if not by_kind:
            return []
        known = await self._known(BLOCKED_COLLECTION, list(by_kind))
        return [add_blocks(kind, known.get(kind), found) for kind, found in by_kind.items()]

    async def _of_unhandled(self, noted: dict[str, Unhandled]) -> list[Put]:
        known = await self._known(UNHANDLED_COLLECTION, list(noted)) if noted else {}
        return [one.put(known.get(kind)) for kind, one in noted.items()]

    async def _known(self, collection: str, ids: list[str]) -> dict[str, Record]:
        return {one.id: one for one in await self._store.records(collection, ids=ids, limit=len(ids))}

    async def _of_ended(self, tokens: set[str]) -> list[Put]:
        if not tokens:
            return []
        return [
            stray_over(one) for one in await self._store.records(STRAY_COLLECTION, ids=list(tokens), limit=len(tokens))
        ]
