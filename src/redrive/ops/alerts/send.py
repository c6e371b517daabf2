"""Sends messages about alerts: directly, in a thread of its own, each within a few seconds. Never as a task: it would
stand in the queue that it reports. Also one by hand, to see whether the destinations are right."""

from __future__ import annotations

import asyncio
import contextlib
import json
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable
from datetime import datetime
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.alerts.book import Alert, Message
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.diagnosis import Level
from redrive.kernel.ports.store import Store
from redrive.ops.alerts.messages import Place, Wording
from redrive.settings import Settings
from redrive.version import __version__

T = TypeVar("T")
TIMEOUT_S = 5.0
PAUSES_S = (0.5, 1.5)  # between the tries of one round
Send = Callable[[Message], None]


class NotSent(Exception):
    """It could not be sent; says why, without the address, which is a secret."""


class _NoRedirects(HTTPRedirectHandler):
    """What is sent is meant for this address, and for none that it points to."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = build_opener(_NoRedirects)


def destinations(settings: Settings, wording: Wording) -> dict[str, Send]:
    """Returns how to send to each destination of the settings, by its name."""
    found: dict[str, Send] = {}
    if webhook := settings.alert_webhook:
        found["webhook"] = lambda message: call(webhook, wording.document(message))
    if slack := settings.alert_slack:
        found["slack"] = lambda message: call(slack, wording.slack(message))
    if addresses := settings.alert_email:
        found["email"] = lambda message: _mail(
            settings.alert_smtp, settings.alert_from, addresses, message.id, *wording.mail(message)
        )
    return found


async def deliver(send: Send, message: Message, stopping: Callable[[], bool]) -> str | None:
    """Sends a message, with a short retry; returns why it could not be."""
    for pause in (*PAUSES_S, None):
        try:
            return await in_thread(lambda: send(message))
        except NotSent as error:
            fault = str(error)
        except Exception as error:  # whatever it is, the others are told, and this one is tried again
            fault = type(error).__name__
        if pause is None or stopping():
            break
        await asyncio.sleep(pause)
    return fault


async def in_thread(work: Callable[[], T]) -> T:
    """Returns what ``work`` returns. Its thread is a daemon: one that hangs does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if not done.done():
            if error is None:
                done.set_result(result)  # type: ignore[arg-type]
            else:
                done.set_exception(error)

    def run() -> None:
        outcome: tuple[T | None, BaseException | None]
        try:
            outcome = work(), None
        except Exception as error:
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="redrive-alert", daemon=True).start()
    try:
        async with asyncio.timeout(2 * TIMEOUT_S):
            return await done
    except TimeoutError:
        raise NotSent("no answer in time") from None


def call(url: str, body: Any = None) -> None:
    """Calls an address, with a JSON body if there is one. Raises NotSent."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"User-Agent": f"redrive/{__version__}", **({} if data is None else {"Content-Type": "application/json"})}
    try:
        with _opener.open(Request(url, data=data, headers=headers), timeout=TIMEOUT_S) as answer:  # noqa: S310 - http
            answer.read(1024)
    except HTTPError as error:
        raise NotSent(f"it answered with HTTP {error.code}") from None
    except URLError as error:
        raise NotSent(_reason(error.reason)) from None
    except Exception as error:  # a hostile answer may be anything
        raise NotSent(_reason(error)) from None


def _mail(server: str, sender: str, to: list[str], message_id: str, subject: str, text: str) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = sender, ", ".join(to), " ".join(subject.split())
    message["Date"], message["Message-ID"] = formatdate(), f"<{message_id}@redrive>"
    message.set_content(text)
    where = urlsplit(server)
    try:
        with _connected(where.scheme, where.hostname or "localhost", where.port or 0) as smtp:
            if where.username:
                smtp.login(unquote(where.username), unquote(where.password or ""))
            smtp.send_message(message)
    except smtplib.SMTPResponseException as error:
        raise NotSent(f"the mail server answered with {error.smtp_code}") from None
    except Exception as error:
        raise NotSent(_reason(error)) from None


def _connected(scheme: str, host: str, port: int) -> smtplib.SMTP:
    """Returns a connection, encrypted where the server can."""
    context = ssl.create_default_context()
    if scheme == "smtps":
        return smtplib.SMTP_SSL(host, port or 465, timeout=TIMEOUT_S, context=context)
    smtp = smtplib.SMTP(host, port or 25, timeout=TIMEOUT_S)
    smtp.ehlo()
    if smtp.has_extn("starttls"):
        smtp.starttls(context=context)
    return smtp


def _reason(error: object) -> str:
    """Returns what went wrong by its kind alone: a text may quote the address."""
    words = getattr(error, "strerror", None)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


# -- a message by hand -------------------------------------------------------------------------------------------------


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
