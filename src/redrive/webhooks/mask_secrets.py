"""Covers secrets in what a receiver answers: frameworks' debug pages show the configuration, each in its spelling."""

from __future__ import annotations

import base64
import encodings.utf_16_be  # noqa: F401 (found by its name below, which would import it in the middle of a delivery)
import html
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from redrive.webhooks.signing import PREFIX, key_of

COVERED = "•••"
SHORTEST = 6  # what is shorter stands in any text by chance


def covered(text: str, secrets: Iterable[str], signatures: Iterable[str] = ()) -> str:
    """Returns a text without the secrets, however they are spelled, and without these signatures."""
    for secret in secrets:
        text = _pattern(secret).sub(COVERED, text)
    for signature in signatures:
        text = text.replace(signature, COVERED).replace(signature.replace("/", r"\/"), COVERED)
    return text


def spellings(secret: str) -> set[str]:
    """Returns a secret as it was given, without ``whsec_``, its key as text, in hex, and as base64 of both alphabets
    without the ``=`` at its end."""
    key = key_of(secret)
    found = {secret.removeprefix(PREFIX).rstrip("="), key.hex()}
    for text in (key, secret.encode()):
        packed = base64.b64encode(text).decode().rstrip("=")
        found |= {packed, packed.translate(str.maketrans("+/", "-_"))}
    as_text = key.decode("utf-8", "replace")
    if as_text.isprintable():
        found.add(as_text)
    return {secret} | {one for one in found if len(one) >= SHORTEST}


@lru_cache(256)
def _pattern(secret: str) -> re.Pattern[str]:
    """Returns what finds a secret in any spelling, the longest first: of ``abcdef`` and ``abcdefgh`` nothing stays."""
    known = sorted(spellings(secret), key=len, reverse=True)
    anyway = [_escaped(one) if one != key_of(secret).hex() else f"(?i:{one})" for one in known]
    return re.compile(f"(?:{'|'.join(anyway)})(?:{_character('=')})*")


def _escaped(text: str) -> str:
    return "".join(_character(one) for one in text)


@lru_cache(1024)
def _character(one: str) -> str:
    """Returns what matches a character as JSON, HTML and URLs write it: ``/`` is also ``\\/``, ``\\u002f``, ``%2F``."""
    if one.isascii() and one.isalnum():
        return one
    units = one.encode("utf-16-be").hex()
    ways = {
        one,
        "\\" + one,
        "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)),
        quote(one, safe=""),
        "".join(f"%{byte:02x}" for byte in one.encode()),
        f"&#{ord(one)};",
        f"&#x{ord(one):x};",
        html.escape(one),
        *("+" if one == " " else ""),
    }
    return f"(?i:{'|'.join(re.escape(way) for way in sorted(ways, key=len, reverse=True))})"
