"""What a feature's commands import: ``redrive NAME …``, as ``Feature.commands`` names them."""

from redrive.cli.declared import group_of
from redrive.cli.support import output
from redrive.cli.support.connections import Looked, look_at
from redrive.cli.support.options import AppName, By, Create, Json, Url
from redrive.cli.support.session import operate

__all__ = ["AppName", "By", "Create", "Json", "Looked", "Url", "group_of", "look_at", "operate", "output"]
