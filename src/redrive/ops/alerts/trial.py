"""Sends a message by hand, to see whether the destinations of alerts are right before something is wrong."""

from __future__ import annotations

import asyncio
import socket
from datetime import datetime

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.alerts.book import Alert, Message
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.diagnosis import Level
from redrive.kernel.ports.store import Store
from redrive.ops.alerts.messages import Place, Wording
from redrive.ops.alerts.send import deliver, destinations
from redrive.settings import Settings

RULE = "test"
NOWHERE = "no destination of alerts is set where this runs"
SET_ONE = (
    "set REDRIVE_ALERT_SLACK, REDRIVE_ALERT_WEBHOOK or REDRIVE_ALERT_EMAIL, here to try it, and where workers start"
)


async def send_trial(store: Store, settings: Settings, actor: str, connection: str | None) -> dict[str, str | None]:
    """Sends a message to each destination that this process knows, once; returns why it could not be sent, by
    destination. Workers know what their own environment says, which may be something else."""
    now = await store.now()
    place = Place("none in particular: this is a test", socket.gethostname(), settings.env, connection)
    to = destinations(settings, Wording(settings.alert_runbooks, place, {}))
    if not to:
        raise InvalidInput(NOWHERE, hint=SET_ONE)
    await store.apply(Commit(audits=[Audit(actor, "ALERT_TEST", target=f"alert:{RULE}", after={"to": sorted(to)})]))
    message = _message(now, actor, tuple(to))
    faults = await asyncio.gather(*(deliver(send, message, lambda: True) for send in to.values()))
    return dict(zip(to, faults, strict=True))


def _message(now: datetime, actor: str, to: tuple[str, ...]) -> Message:
    text = f"this is a test by {actor}: nothing is wrong, and messages about alerts arrive here"
    alert = Alert(RULE, "", Level.WARNING, text, 0, now, "nothing: nobody has to act", fired=now)
    return Message(f"test-{new_id()}", now, now, to, (alert,))
