"""How the commands on pages reach the store that the pages are about."""

from __future__ import annotations

from redrive.app import App
from redrive.ops.operator import Operator
from redrive.ops.shell import Shell, shell_at, shell_for


def for_pages(app: App, operator: Operator) -> Operator:
    """Returns the same operator for pages, with commands that run where its reader sits."""
    return operator.for_pages(_shell(app, operator))


def _shell(app: App, operator: Operator) -> Shell:
    if operator.told_connection is not None:
        return shell_at(operator.connection, app.spec)
    return shell_for(app.url, app.shown_url, app.spec)
