"""The handler of a projection's kind: what a worker calls with claimed events."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from redrive.outbox.projection import Projection
from redrive.outbox.settings import OutboxSettings

if TYPE_CHECKING:
    from redrive.handlers.bulk import Bulk
    from redrive.outbox.relay.prune_sink import SinkPruner
    from redrive.outbox.relay.relay import Relay


class ProjectionHandler:
    """The handler of a projection's kind. By it the projection is found wherever the application's kinds are known."""

    def __init__(self, projection: Projection, settings: OutboxSettings) -> None:
        self.projection = projection
        self._settings = settings
        self._relay: Relay | None = None
        self._noted = False  # which index this process writes to
        self._pruner: SinkPruner

    async def relay(self, bulk: Bulk) -> None:
        """Projects events."""
        if self._relay is None:
            from redrive.outbox.relay.lives import resolve_lives
            from redrive.outbox.relay.prune_sink import SinkPruner
            from redrive.outbox.relay.relay import Relay
            from redrive.outbox.relay.sink_backoff import SinkBackoff

            own = self._settings
            size, resolve = self.projection.request_size(own), partial(resolve_lives, self.projection)
            self._relay = Relay(self.projection, size, SinkBackoff(own.backoff), resolve)
            self._pruner = SinkPruner(self.projection.name, own.tombstone_days)
        # First: what is old enough to be forgotten must not refuse what comes now.
        await self._pruner.before_request(self.projection.sink())
        await self._relay.project(bulk)
        if not self._noted and self.projection.projected_at is not None:
            from redrive.outbox.index_watch import note_written

            self._noted = await note_written(bulk[0].context.store, self.projection, self._settings)
