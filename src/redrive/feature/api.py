"""What a feature's routes import: below ``/api/NAME``, as ``Feature.routes`` names them."""

from redrive.api.access import TheOperator
from redrive.api.declared import router_of
from redrive.api.models import In, Out
from redrive.api.problems import PROBLEMS

__all__ = ["PROBLEMS", "In", "Out", "TheOperator", "router_of"]
