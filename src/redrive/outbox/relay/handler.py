"""The handler of a projection's kind: what a worker calls with claimed events."""

from __future__ import annotations

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
        self._pruner: SinkPruner

    async def relay(self, bulk: Bulk) -> None:
        """Projects events."""
        if self._relay is None:
            from redrive.outbox.relay.prune_sink import SinkPruner
            from redrive.outbox.relay.relay import Relay
            from redrive.outbox.relay.request_size import RequestSize
            from redrive.outbox.relay.sink_backoff import SinkBackoff

            own = self._settings
            size = RequestSize(self.projection.batch, own.batch_bytes, own.batch_seconds)
            self._relay = Relay(self.projection, size, SinkBackoff(own.backoff))
            self._pruner = SinkPruner(self.projection.name, own.tombstone_days)
        await self._relay.project(bulk)
        if not bulk.cancelled:
            await self._pruner.after_request(self.projection.sink())
