"""Reads the console's own cookies."""

from __future__ import annotations

from fastapi import Request


def read_cookie(request: Request, name: str) -> str:
    """Returns the value of one of our cookies; empty when the browser did not send it.

    Ours hold plain characters. Python's own reader also takes escapes apart, in versions before 3.11.10 in quadratic
    time: anybody could hold up the server with one header.
    """
    for part in request.headers.get("cookie", "").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value.strip('"')
    return ""
