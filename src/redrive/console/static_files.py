"""Serves the console's own styles, scripts and pictures."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Response

from redrive.console.addresses import HOME
from redrive.errors import PageUnknown

router = APIRouter(include_in_schema=False)
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_NAME = re.compile(r"[a-z][a-z_]*\.(css|js|svg)")
# The address holds a mark of the content of all files: what a browser keeps is what was meant.
_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}


@cache
def mark() -> str:
    """Returns a mark that changes with the content of any of the files; scripts import each other below it."""
    digest = hashlib.sha256()
    for file in sorted(_folder().iterdir(), key=lambda file: file.name):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def asset(name: str) -> str:
    """Returns the address of a file."""
    return f"{HOME}/static/{mark()}/{name}"


@router.get(HOME + "/static/{given}/{name}")
async def static_file(given: str, name: str) -> Response:
    found = _NAME.fullmatch(name)
    content = None if found is None else _content(name)
    if found is None or content is None:
        raise PageUnknown("there is no such file")
    # A page of the version before may still ask by its own mark, and must not keep what it gets for ever.
    return Response(content, media_type=TYPES[found[1]], headers=_KEPT if given == mark() else {})


@cache
def _content(name: str) -> bytes | None:
    file = _folder() / name
    return file.read_bytes() if file.is_file() else None


def _folder() -> Traversable:
    return resources.files("redrive.console") / "static"
