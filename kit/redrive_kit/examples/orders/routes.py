"""``/api/orders``."""

from __future__ import annotations

from redrive.feature.api import router_of
from redrive_kit.examples.orders.service import Orders

router = router_of(Orders, "orders")
