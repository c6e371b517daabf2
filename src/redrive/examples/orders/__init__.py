"""An example of a feature: orders of several parcels, paid for as they are delivered.

Everything of it is in this folder. An application takes it up with ``App(features=[ORDERS])``, a package by naming it
in its metadata: ``[project.entry-points."redrive.features"]``, ``orders = "redrive.examples.orders:ORDERS"``.
"""

from redrive.examples.orders.alerts import ALERTS
from redrive.examples.orders.handlers import kinds
from redrive.examples.orders.late import duties, examine
from redrive.examples.orders.reaction import belongs, react
from redrive.examples.orders.settings import OrderSettings, retention
from redrive.feature import Feature, Need

ORDERS = Feature(
    "orders",
    __name__,
    react=react,
    duties=duties,
    kinds=kinds,
    services={"orders": "redrive.examples.orders.service:Shop"},
    routes="redrive.examples.orders.routes:router",
    commands="redrive.examples.orders.commands:cli",
    pages="redrive.examples.orders.pages:pages",
    settings=OrderSettings,
    retention=retention,
    examine=examine,
    alerts=ALERTS,
    belongs=belongs,
    reserved_kinds=("ORDERS_",),
    metrics="redrive.examples.orders.metrics:metrics",
    needs=(Need.JOINS, Need.LEDGER),
)
__all__ = ["ORDERS"]
