"""Asks servers over HTTP, without a client that would have to be installed."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 10.0


@dataclass(slots=True, frozen=True)
class Said:
    """What was answered; the status is 0 where nobody did."""

    status: int
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


async def ask(
    url: str, body: Mapping[str, Any] | None = None, *, method: str | None = None, login: str | None = None
) -> Said:
    """GETs an address, or POSTs a document to it. ``login``: ``user:password``."""
    return await asyncio.to_thread(_ask, url, body, method, login)


def _ask(url: str, body: Mapping[str, Any] | None, method: str | None, login: str | None) -> Said:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if data else {}
    headers |= {"Authorization": f"Basic {b64encode(login.encode()).decode()}"} if login else {}
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 (an address that was given)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # what is asked is on this machine
    try:
        with opener.open(request, timeout=PATIENCE_S) as answer:
            return Said(answer.status, answer.read().decode(errors="replace"))
    except urllib.error.HTTPError as error:
        return Said(error.code, error.read().decode(errors="replace"))
    except (OSError, ValueError) as error:
        return Said(0, f"{type(error).__name__}: {error}")
