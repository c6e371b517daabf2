"""An example of a feature: orders of several parcels, paid for as they are delivered.

Everything of it is in this folder. An application takes it up with ``App(features=[ORDERS])``, a package by naming it
in its metadata: ``[project.entry-points."redrive.features"]``, ``orders = "redrive_kit.examples.orders:ORDERS"``.
"""

from redrive.feature import Feature, Need
from redrive_kit.examples.orders.alerts import ALERTS
from redrive_kit.examples.orders.handlers import kinds
from redrive_kit.examples.orders.late import duties, examine
from redrive_kit.examples.orders.reaction import belongs, react
from redrive_kit.examples.orders.settings import OrderSettings, retention

ORDERS = Feature(
    "orders",
    __name__,
    react=react,
    duties=duties,
    kinds=kinds,
    services={"orders": "redrive_kit.examples.orders.service:Shop"},
    routes="redrive_kit.examples.orders.routes:router",
    commands="redrive_kit.examples.orders.commands:cli",
    pages="redrive_kit.examples.orders.pages:pages",
    settings=OrderSettings,
    retention=retention,
    examine=examine,
    alerts=ALERTS,
    belongs=belongs,
    reserved_kinds=("ORDERS_",),
    metrics="redrive_kit.examples.orders.metrics:metrics",
    needs=(Need.JOINS, Need.LEDGER),
)
__all__ = ["ORDERS"]
