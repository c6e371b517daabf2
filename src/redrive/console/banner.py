"""The banner of alerts, which is on every page and says nothing while nothing fires."""

from __future__ import annotations

from datetime import datetime

from redrive.console.templates_env import render
from redrive.errors import RedriveError
from redrive.ops.operator import Operator
from redrive.ops.operator.alerts import AlertsView


async def look(operator: Operator, now: datetime | None = None) -> AlertsView | None:
    """Returns the alerts there are; None where nobody can say: then the page is needed all the more."""
    try:
        return await (operator.alerts.current() if now is None else operator.alerts.at(now))
    except RedriveError:
        return None


def banner(operator: Operator, found: AlertsView | None) -> str:
    """Returns the banner."""
    return render("regions/alert_banner.html", operator, loud=[] if found is None else found.loud)
