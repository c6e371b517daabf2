"""TLS: the name is verified although the address is connected to."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from redrive.webhooks.delivery_attempt import Answer, post
from redrive.webhooks.settings import WebhookSettings
from tests.webhooks.conftest import HERE
from tests.webhooks.receiver import Receiver, receiving

pytestmark = pytest.mark.anyio
NAME = "customer.example"


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def receiver(authority: trustme.CA) -> Iterator[Receiver]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(NAME).configure_cert(context)
    with receiving(context) as own:
        yield own


@pytest.fixture
def settings(authority: trustme.CA, tmp_path: Path) -> WebhookSettings:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return WebhookSettings(allow_networks=HERE, ca_file=str(tmp_path / "ca.pem"))


async def send(receiver: Receiver, settings: WebhookSettings, host: str, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Sends to a host of this name, which is at 127.0.0.1 for as long as it is judged, and nowhere afterwards."""
    asked: list[str] = []
    really = socket.getaddrinfo

    def resolved(name: str, port: int | None, *how: int, **named: int) -> list[Any]:
        if name != host or named.get("flags") == socket.AI_NUMERICHOST:
            return really(name, port, *how, **named)
        asked.append(name)
        if len(asked) > 1:
            raise socket.gaierror("asked a second time")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    answer = await post(receiver.url(host=host), b"{}", {"webhook-id": "evt_1"}, settings)
    assert asked == [host], "the address that was judged is the one connected to"
    return answer


async def test_the_certificate_has_to_be_of_the_name(
    receiver: Receiver, settings: WebhookSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await send(receiver, settings, NAME, monkeypatch)
    assert (answer.outcome, answer.address) == ("delivered", "127.0.0.1")
    assert receiver.got[0].headers["host"] == f"{NAME}:{receiver.port}"


async def test_one_of_another_name_is_refused(
    receiver: Receiver, settings: WebhookSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await send(receiver, settings, "another.example", monkeypatch)
    assert answer.outcome == "tls" and receiver.got == []
    assert "certificate" in (answer.error or "").lower()


async def test_one_of_an_authority_that_nobody_knows_is_refused(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await send(receiver, WebhookSettings(allow_networks=HERE), NAME, monkeypatch)
    assert answer.outcome == "tls" and receiver.got == []
