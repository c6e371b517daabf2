"""A form of a page, filled in again as somebody had filled it in, with what is wrong beside its field.

It works on the page's text, so that every form of every page keeps what was typed, also those of features. Templates
escape all that is put into them: no attribute has a bare ``<``, ``>`` or ``"`` in its value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape

Typed = Mapping[str, Sequence[str]]
_FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.S)
_FIELD = re.compile(r"<(?P<tag>input|button|select|textarea)\b(?P<attributes>[^>]*)>")
_CONTENT = re.compile(r"(?P<content>.*?)</(?:select|textarea)>", re.S)
_OPTION = re.compile(r"<option\b([^>]*)>([^<]*)")
_ATTRIBUTE = re.compile(r'([\w-]+)(?:="([^"]*)")?')
_DETAILS = re.compile(r"<(/?)details\b([^>]*)>")


def is_of_its_time(name: str) -> bool:
    """Whether a hidden field says when the page was made, not what it is about."""
    return name in ("csrf", "back", "here", "once") or _is_what_was_seen(name)


def _is_what_was_seen(name: str) -> bool:
    """Whether a hidden field says what its author saw: it is compared with what is there when the form comes."""
    return name == "seen" or name.startswith("was_")


@dataclass(slots=True)
class Field:
    """One field of a form: where it stands there, and the text in a select or a textarea."""

    tag: str
    attributes: dict[str, str | None]
    start: int
    end: int
    content: str = ""

    def get(self, name: str) -> str:
        return self.attributes.get(name) or ""

    @property
    def name(self) -> str:
        return self.get("name")

    @property
    def is_typed_in(self) -> bool:
        """Whether people fill it in, by typing or choosing."""
        return self.tag != "button" and self.get("type") not in ("hidden", "submit", "password")

    def fill(self, values: Sequence[str]) -> None:
        if self.tag == "select":
            self.content = _OPTION.sub(lambda found: _option(found, values), self.content)
        elif self.tag == "textarea":
            self.content = escape(values[0] if values else "")
        elif self.get("type") in ("checkbox", "radio"):
            self.attributes.pop("checked", None)
            if self.attributes.get("value", "on") in values:
                self.attributes["checked"] = None
        elif values:
            self.attributes["value"] = values[0]

    @property
    def text(self) -> str:
        closed = f"{self.content}</{self.tag}>" if self.tag in ("select", "textarea") else ""
        return _tag(self.tag, self.attributes) + closed


class Form:
    """A form of a page."""

    def __init__(self, found: re.Match[str]) -> None:
        self.attributes, self.body = _attributes(found[1]), found[2]
        self.start, self.end = found.span()
        self.fields = list[Field]()
        for field in _FIELD.finditer(self.body):
            made = Field(field["tag"], _attributes(field["attributes"]), *field.span())
            if made.tag in ("select", "textarea") and (rest := _CONTENT.match(self.body, made.end)):
                made.content, made.end = rest["content"], rest.end()
            self.fields.append(made)

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(one.name for one in self.fields if one.is_typed_in and one.name))

    def is_the_one(self, typed: Typed) -> bool:
        """Whether it is about the same thing as what was sent: all that it carries along was sent so. Another one would
        do to its own row what somebody had meant for a row that is gone."""
        return all(one.get("value") in typed.get(one.name, ()) for one in self._carried())

    def likeness(self, typed: Typed) -> tuple[bool, int]:
        """Returns whether one of its buttons was pressed, and how much it carries along of what was sent."""
        pressed = [one for one in self.fields if one.tag == "button"]
        return any(one.get("value") in typed.get(one.name, ()) for one in pressed), len(self._carried())

    def _carried(self) -> list[Field]:
        return [one for one in self.fields if one.get("type") == "hidden" and not is_of_its_time(one.name)]

    def filled(self, typed: Typed, wrong: str, about: str | None) -> str:
        """Returns its text with what was typed, and the sentence behind its field, or at its head where it is about
        none."""
        blamed = next((one for one in self.fields if one.is_typed_in and one.name == about), None)
        head = "" if blamed else f'<p class="notice bad" role="alert">{escape(wrong)}</p>'
        parts, place = [_tag("form", self.attributes), head], 0
        for one in self.fields:
            if one.is_typed_in:
                one.fill(typed.get(one.name, ()))
            elif one.get("type") == "hidden" and _is_what_was_seen(one.name) and typed.get(one.name):
                # With what is there now, a colleague's change would count as undone by its author.
                one.attributes["value"] = typed[one.name][0]
            else:
                continue
            if one is blamed:
                one.attributes |= {"aria-invalid": "true", "aria-describedby": "wrong", "autofocus": None}
            parts += [self.body[place : one.start], one.text]
            if one is blamed:
                parts.append(f'<span class="wrong" id="wrong" role="alert">{escape(wrong)}</span>')
            place = one.end
        return "".join([*parts, self.body[place:], "</form>"])


def refill(page: str, action: str, typed: Typed, wrong: str, about: str | None = None) -> tuple[str, str] | None:
    """Returns the page with the form that was sent to ``action`` filled in as ``typed``, and that form alone; None
    where the page has none. ``about``: the field that is wrong; where it is not said, the one that the sentence names.
    """
    forms = [Form(found) for found in _FORM.finditer(page)]
    forms = [one for one in forms if (one.attributes.get("action") or "").partition("?")[0] == action]
    forms = [one for one in forms if set(one.names) & set(typed) and one.is_the_one(typed)]
    if not forms:
        return None
    form = max(forms, key=lambda one: one.likeness(typed))
    text = form.filled(typed, wrong, about or _named(form.names, wrong))
    return _unfolded(page[: form.start]) + text + page[form.end :], text


def _unfolded(before: str) -> str:
    """Returns a text whose details that do not end in it are open."""
    inside = list[re.Match[str]]()
    for found in _DETAILS.finditer(before):
        if found[1]:
            inside.pop()
        else:
            inside.append(found)
    for found in reversed(inside):
        tag = _tag("details", {**_attributes(found[2]), "open": None})
        before = before[: found.start()] + tag + before[found.end() :]
    return before


def _named(names: Sequence[str], wrong: str) -> str | None:
    """Returns the field that a sentence is about: the one that it names first."""
    found = {name: re.search(rf"\b{re.escape(name)}\b", wrong, re.IGNORECASE) for name in names}
    places = {name: match.start() for name, match in found.items() if match is not None}
    return min(places, key=places.__getitem__, default=None)


def _option(found: re.Match[str], values: Sequence[str]) -> str:
    attributes = _attributes(found[1])
    attributes.pop("selected", None)
    if (attributes.get("value", unescape(found[2])) or "").strip() in values:
        attributes["selected"] = None
    return _tag("option", attributes) + found[2]


def _attributes(text: str) -> dict[str, str | None]:
    return {one[1]: None if one[2] is None else unescape(one[2]) for one in _ATTRIBUTE.finditer(text)}


def _tag(name: str, attributes: Mapping[str, str | None]) -> str:
    given = "".join(f' {k}="{escape(v)}"' if v is not None else f" {k}" for k, v in attributes.items())
    return f"<{name}{given}>"
