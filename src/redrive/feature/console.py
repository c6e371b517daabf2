"""What a feature's pages import: below ``/ops/queue/NAME``, as ``Feature.pages`` names them."""

from redrive.console.charts import Chart, Series, draw
from redrive.console.feature_pages import FeaturePages, Panel
from redrive.console.navigation import Item, Section
from redrive.console.page import TheForm, ThePage
from redrive.console.routes import pages_router
from redrive.console.templates_env import render

__all__ = [
    "Chart",
    "FeaturePages",
    "Item",
    "Panel",
    "Section",
    "Series",
    "TheForm",
    "ThePage",
    "draw",
    "pages_router",
    "render",
]
