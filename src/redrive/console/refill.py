"""A form of a page, filled in again as somebody had filled it in, with what is wrong beside its field.

It works on the page's text, so that every form of every page keeps what was typed, also those of features.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from html.parser import HTMLParser

Typed = Mapping[str, Sequence[str]]
_EMPTY = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")


@dataclass(slots=True)
class Tag:
    """A start tag, where it stands, and where its element's content ends."""

    name: str
    attrs: dict[str, str | None]
    start: int
    end: int
    content_end: int = 0

    def attr(self, name: str) -> str:
        return self.attrs.get(name) or ""

    @property
    def is_typed_in(self) -> bool:
        """Whether people fill it in, by typing or choosing."""
        return self.name != "button" and self.attr("type") not in ("hidden", "submit", "password")

    def text(self) -> str:
        given = "".join(f' {k}="{escape(v)}"' if v is not None else f" {k}" for k, v in self.attrs.items())
        return f"<{self.name}{given}>"


@dataclass(slots=True)
class FoundForm:
    tag: Tag
    folds: list[Tag]  # the details in which it stands
    fields: list[Tag] = field(default_factory=list)
    options: dict[int, list[Tag]] = field(default_factory=dict)  # by the place of their select

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(one.attr("name") for one in self.fields if one.is_typed_in and one.attr("name")))

    def is_the_one(self, typed: Typed) -> bool:
        """Whether it is about the same thing as what was sent: all that it carries along was sent so. Another one would
        do to its own row what somebody had meant for a row that is gone."""
        return all(one.attr("value") in typed.get(one.attr("name"), ()) for one in self._carried())

    def likeness(self, typed: Typed) -> tuple[bool, int]:
        """Returns whether one of its buttons was pressed, and how much it carries along of what was sent."""
        pressed = [one for one in self.fields if one.name == "button"]
        return any(one.attr("value") in typed.get(one.attr("name"), ()) for one in pressed), len(self._carried())

    def _carried(self) -> list[Tag]:
        hidden = [one for one in self.fields if one.attr("type") == "hidden"]
        return [one for one in hidden if not is_of_its_time(one.attr("name"))]


def is_of_its_time(name: str) -> bool:
    """Whether a hidden field says when the page was made, not what it is about."""
    return name in ("csrf", "back", "here", "seen", "once") or _is_what_was_seen(name)


def _is_what_was_seen(name: str) -> bool:
    """Whether a hidden field says what its author saw: it is compared with what is there when the form comes."""
    return name == "seen" or name.startswith("was_")


class _Reader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[FoundForm] = []
        self._open: list[Tag] = []
        # By the way they are asked for at each tag, of which a page has thousands.
        self._form: Tag | None = None
        self._select: Tag | None = None
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]
        self.feed(text)
        self.close()

    def _place(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        start = self._place()
        made = Tag(tag, dict(attrs), start, start + len(self.get_starttag_text() or ""))
        if tag == "form":
            self._form = made
            self.forms.append(FoundForm(made, [one for one in self._open if one.name == "details"]))
        elif self._form is not None:
            if tag in ("input", "select", "textarea", "button"):
                self.forms[-1].fields.append(made)
                self._select = made if tag == "select" else self._select
            elif tag == "option" and self._select is not None:
                self.forms[-1].options.setdefault(self._select.start, []).append(made)
        if tag not in _EMPTY:
            self._open.append(made)

    def handle_endtag(self, tag: str) -> None:
        if any(one.name == tag for one in reversed(self._open)):
            while (closed := self._open.pop()).name != tag:
                closed.content_end = self._place()
            closed.content_end = self._place()
        self._form = None if tag == "form" else self._form
        self._select = None if tag == "select" else self._select


class Refilled:
    """The page with its form filled in; ``form`` is that form alone."""

    def __init__(self, page: str, form: FoundForm, typed: Typed, wrong: str, about: str | None) -> None:
        self._edits: list[tuple[int, int, str]] = []
        self._span = form.tag.start, form.tag.content_end
        self._page = page
        for one in form.fields:
            if one.is_typed_in:
                self._fill(one, form, typed)
            elif one.attr("type") == "hidden" and _is_what_was_seen(one.attr("name")):
                self._keep(one, typed)
        self._say(form, wrong, about)
        for fold in form.folds:
            fold.attrs.setdefault("open", None)
            self._edits.append((fold.start, fold.end, fold.text()))

    @property
    def page(self) -> str:
        return self._edited(0, len(self._page))

    @property
    def form(self) -> str:
        return self._edited(*self._span) + "</form>"

    def _fill(self, one: Tag, form: FoundForm, typed: Typed) -> None:
        values = typed.get(one.attr("name"), ())
        if one.name == "select":
            self._choose(form.options.get(one.start, []), values)
        elif one.attr("type") in ("checkbox", "radio"):
            one.attrs.pop("checked", None)
            if one.attrs.get("value", "on") in values:
                one.attrs["checked"] = None
        elif one.name == "textarea":
            self._edits.append((one.end, one.content_end, escape(values[0] if values else "")))
        elif values:
            one.attrs["value"] = values[0]
        self._edits.append((one.start, one.end, one.text()))

    def _keep(self, one: Tag, typed: Typed) -> None:
        """Leaves what its author saw: with what is there now, a colleague's change would count as hers undone."""
        for value in typed.get(one.attr("name"), ())[:1]:
            one.attrs["value"] = value
            self._edits.append((one.start, one.end, one.text()))

    def _choose(self, options: Sequence[Tag], values: Sequence[str]) -> None:
        for option in options:
            option.attrs.pop("selected", None)
            said = (
                option.attr("value")
                if "value" in option.attrs
                else unescape(self._page[option.end : option.content_end])
            )
            if said.strip() in values:
                option.attrs["selected"] = None
            self._edits.append((option.start, option.end, option.text()))

    def _say(self, form: FoundForm, wrong: str, about: str | None) -> None:
        """Puts the sentence behind its field, or at the head of the form where it is about none."""
        said = next((one for one in form.fields if one.is_typed_in and one.attr("name") == about), None)
        if said is None:
            told = f'<p class="notice bad" role="alert">{escape(wrong)}</p>'
            self._edits.append((form.tag.end, form.tag.end, told))
            return
        said.attrs |= {"aria-invalid": "true", "aria-describedby": "wrong", "autofocus": None}
        self._edits = [one for one in self._edits if one[0] != said.start]
        self._edits.append((said.start, said.end, said.text()))
        behind = said.end if said.name == "input" else said.content_end + len(f"</{said.name}>")
        self._edits.append((behind, behind, f'<span class="wrong" id="wrong" role="alert">{escape(wrong)}</span>'))

    def _edited(self, start: int, end: int) -> str:
        parts, place = [], start
        for begin, over, text in sorted(self._edits, key=lambda one: one[:2]):
            if start <= begin and over <= end:
                parts += [self._page[place:begin], text]
                place = over
        return "".join([*parts, self._page[place:end]])


def refill(page: str, action: str, typed: Typed, wrong: str, about: str | None = None) -> Refilled | None:
    """Returns the page with the form that was sent to ``action`` filled in as ``typed``; None where it has none.
    ``about``: the field that is wrong; where it is not said, the one that the sentence names."""
    forms = [one for one in _Reader(page).forms if one.tag.attr("action").partition("?")[0] == action]
    forms = [one for one in forms if set(one.names) & set(typed) and one.is_the_one(typed)]
    if not forms:
        return None
    form = max(forms, key=lambda one: one.likeness(typed))
    return Refilled(page, form, typed, wrong, about or _named(form.names, wrong))


def _named(names: Sequence[str], wrong: str) -> str | None:
    """Returns the field that a sentence is about: the one that it names first."""
    found = {name: re.search(rf"\b{re.escape(name)}\b", wrong, re.IGNORECASE) for name in names}
    places = {name: match.start() for name, match in found.items() if match is not None}
    return min(places, key=places.__getitem__, default=None)
