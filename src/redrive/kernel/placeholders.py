"""Fills placeholders of templates, ``{payload.prompt}``, and finds values in documents by such paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

# With a question mark what is not there is left out instead of refused.
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w-]*(?:\.[\w-]+)*)(\??)\}")
_BRACE = re.compile(r"[{}]")


class Missing(KeyError):
    """A path leads nowhere. ``at`` is how far it went."""

    def __init__(self, path: str, at: str) -> None:
        super().__init__(path)
        self.path = path
        self.at = at


class StraysFromPath(ValueError):
    """A value would lead to another address than the template means: it is a whole step of its path, and empty or
    dots."""


class Absent:
    """What an optional placeholder stands for where there is nothing."""


ABSENT = Absent()


def find(document: Any, path: str) -> Any:
    """Returns what a document has at a path: names and numbers of list elements with points between. An empty path is
    the document itself. Raises Missing."""
    walked: list[str] = []
    for step in path.split(".") if path else ():
        document = _below(document, step, path, walked)
        walked.append(step)
    return document


def _below(document: Any, step: str, path: str, walked: Sequence[str]) -> Any:
    if isinstance(document, Mapping) and step in document:
        return document[step]
    if isinstance(document, list) and step.isdecimal() and int(step) < len(document):
        return document[int(step)]
    raise Missing(path, ".".join(walked))


def problem_of(template: Any, known: Sequence[str]) -> str | None:
    """Returns what is wrong with a template whose placeholders begin with one of the ``known`` names; None if
    nothing."""
    for text in _texts(template):
        for path, _ in _PLACEHOLDER.findall(text):
            if path.partition(".")[0] not in known:
                return f"{{{path}}} is not known; there are {_listed(known)}"
        if _BRACE.search(_PLACEHOLDER.sub("", text)):
            return f"a brace in {text[:60]!r} belongs to no placeholder; there are {_listed(known)}"
    return None


def names_in(template: Any) -> set[str]:
    """Returns the first names of all placeholders."""
    return {path.partition(".")[0] for text in _texts(template) for path, _ in _PLACEHOLDER.findall(text)}


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Returns a template with its values. A text that is one placeholder becomes the value as it is; within a longer
    text it becomes text. Raises Missing where a value is not there."""
    if isinstance(template, Mapping):
        inner = {key: filled(one, values) for key, one in template.items()}
        return {key: one for key, one in inner.items() if one is not ABSENT}
    if isinstance(template, list):
        return [one for one in (filled(part, values) for part in template) if one is not ABSENT]
    if not isinstance(template, str):
        return template
    alone = _PLACEHOLDER.fullmatch(template)
    return _value(alone, values) if alone else _PLACEHOLDER.sub(lambda found: _text(_value(found, values)), template)


def filled_url(template: str, values: Mapping[str, Any], encode: Callable[[str], str] | None = None) -> str:
    """Returns a URL with its values, each encoded so that it stays within its part. Raises Missing, and StraysFromPath
    where a step of the path would become ``.`` or ``..``, or nothing at all without a question mark."""
    encoded = encode or (lambda text: quote(text, safe=""))

    def fill(part: str) -> str:
        return _PLACEHOLDER.sub(lambda found: encoded(_text(_value(found, values))), part)

    path, query = _split(template)
    steps = [(step, fill(step)) for step in path.split("/")]
    for step, made in steps:
        needed = any(not optional for _, optional in _PLACEHOLDER.findall(step))
        if step != made and (made in (".", "..") or (needed and not made)):
            raise StraysFromPath(f"{step} is {made!r}, which would lead to another address")
    return "/".join(made for _, made in steps) + fill(query)


def _split(template: str) -> tuple[str, str]:
    """Returns what stands before the query, and the query with its question mark; that of a placeholder is none."""
    bare = _PLACEHOLDER.sub(lambda found: "_" * len(found[0]), template)
    at = next((at for at, one in enumerate(bare) if one in "?#"), len(bare))
    return template[:at], template[at:]


def _value(found: re.Match[str], values: Mapping[str, Any]) -> Any:
    try:
        value = find(values, found[1])
    except Missing:
        value = None
        if not found[2]:
            raise
    return ABSENT if value is None and found[2] else value


def _text(value: Any) -> str:
    if value is ABSENT or value is None:
        return ""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _texts(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        for one in template.values():
            yield from _texts(one)
    elif isinstance(template, list):
        for one in template:
            yield from _texts(one)


def _listed(known: Sequence[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in known)
