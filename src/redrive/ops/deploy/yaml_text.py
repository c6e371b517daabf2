"""Writes YAML as people do: of texts, numbers, truths, lists and mappings.

Not PyYAML, which every installation would get for two commands that only write; nor JSON, which is YAML, too, but what
they print is read, reviewed and edited by people, and holds whole files as texts of many lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/.][\w ./@+-]*(?<! )")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~"}


class Block(str):
    """A text of many lines, written as such."""


def documents(*found: Any) -> str:
    """Returns several documents as one text."""
    return "---\n".join("\n".join(_lines(one)) + "\n" for one in found)


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _entry(f"{_scalar(key)}:", inner)
    else:
        for inner in value:
            first, *rest = _lines(inner) if isinstance(inner, dict) and inner else [_scalar(inner)]
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)


def _entry(head: str, inner: Any) -> Iterator[str]:
    if isinstance(inner, Block):
        yield f"{head} |"
        yield from (f"  {line}" if line else "" for line in inner.rstrip("\n").split("\n"))
    elif isinstance(inner, dict | list) and inner:
        yield head
        yield from (f"  {line}" for line in _lines(inner))
    else:
        yield f"{head} {_scalar(inner)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return str(value)
    return json.dumps(value, ensure_ascii=False)
