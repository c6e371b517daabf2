"""Tombstones: orders (see ``Event``) of deleted documents, kept in the store for sinks that forget them: Elasticsearch,
OpenSearch.

Without them a late, older update would bring a document back, once the sink has forgotten its deletion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from redrive.kernel.commit import Commit
from redrive.kernel.erase import digest_of
from redrive.kernel.reactions import Rows
from redrive.outbox.event import Event, Op

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store


async def bury(store: Store, projection: str, events: Sequence[Event]) -> None:
    """Notes what is about to be deleted: before the sink is told, so that nothing comes in between."""
    rows = tuple(
        {"projection": projection, "key": digest_of(event.key), "version": event.order}
        for event in events
        if event.op is Op.DELETE
    )
    if rows:
        await store.apply(Commit(rows=[Rows("outbox", "bury", rows)]))


async def buried(store: Store, projection: str, keys: Sequence[str]) -> Mapping[str, int]:
    """Returns the orders at which those of these documents were deleted that were, by key."""
    digests = {digest_of(key): key for key in keys}
    if not digests:
        return {}
    rows = await store.sql.feature_rows("outbox", "buried", projection, json.dumps([*digests]))
    return {digests[row["key_digest"]]: int(row["version"]) for row in rows}
