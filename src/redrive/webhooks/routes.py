"""``/api/webhooks``."""

from __future__ import annotations

from redrive.feature.api import router_of
from redrive.webhooks.deliveries import Deliveries
from redrive.webhooks.service import Endpoints

routers = (router_of(Endpoints, "webhooks"), router_of(Deliveries, "webhooks"))
