"""``/api/outbox``."""

from __future__ import annotations

from redrive.feature.api import router_of
from redrive.outbox.service import OutboxService

router = router_of(OutboxService, "outbox")
