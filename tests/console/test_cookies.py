"""The console's cookies are read by a reader of its own, in one pass over the header."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.requests import Request

import redrive
from redrive.console.cookies import read_cookie


def _request(header: str) -> Request:
    return Request({"type": "http", "headers": [(b"cookie", header.encode())]})


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", ""),
        ("redrive_theme=dark", "dark"),
        ("a=b; redrive_theme=dark; redrive_theme=light", "dark"),
        ('redrive_theme="ZGFyaw=="', "ZGFyaw=="),
        ("redrive_themes=dark", ""),
        ('a="' + '\\"' * 15_000 + '"; redrive_theme=dark', "dark"),
    ],
)
def test_a_cookie_is_read(header: str, found: str) -> None:
    assert read_cookie(_request(header), "redrive_theme") == found


def test_nobody_reads_cookies_otherwise() -> None:
    sources = Path(redrive.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if "request.cookies" in path.read_text()] == []
