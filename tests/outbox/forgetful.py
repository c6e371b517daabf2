"""Full text that forgets what was deleted, as Elasticsearch and OpenSearch do after a while."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from redrive.outbox.event import Event
from redrive.outbox.sinks.fts5 import Fts5
from redrive.outbox.verdict import Verdict


class ForgetfulFts5(Fts5):
    remembers_deletes = False

    async def write(self, events: Sequence[Event], index: str | None = None) -> Sequence[Verdict]:
        found = await super().write(events, index)
        await self.forget()
        return found

    async def forget(self) -> None:
        """As if ``index.gc_deletes`` had passed."""

        def forget(db: sqlite3.Connection) -> None:
            db.execute(f"delete from documents_{self._indexes.live(db)}_docs where deleted")

        await self._file.run(forget)
