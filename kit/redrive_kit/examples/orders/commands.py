"""``redrive orders``."""

from __future__ import annotations

from redrive.feature.cli import group_of
from redrive_kit.examples.orders.service import Orders

cli = group_of(Orders)
