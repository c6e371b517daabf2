"""A form that was sent while its page cannot be made: what was sent, shown, and ready to be sent once more."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastapi import Request

from redrive.console import door
from redrive.console.page import Form, read_form
from redrive.console.place import here
from redrive.console.refill import is_of_its_time
from redrive.errors import RedriveError

# What fields are called on the pages; those of features by their own names.
LABELS = {
    "reason": "Why",
    "do": "What to do",
    "rate": "Tasks a second",
    "canary": "Try first (canary)",
    "percent": "Of which succeed, %",
    "then": "And then",
    "stop_on_return": "Stop when the same failure is back",
    "fixed": "What was fixed",
    "idempotent": "May the handlers run twice",
    "concurrency": "At once",
    "rate_ms": "Milliseconds apart",
    "for": "For how long",
    "olderThanDays": "Older than, in days",
}
WORDS = ("reason", "note", "fixed")  # typed in freely: they may be put better on the way
SECRETS = ("token", "password", "secret")  # asked for once more: no page repeats them
_ITS_OWN = ("plan", "all", "once")  # means nothing to whoever reads it


@dataclass(slots=True)
class KeptForm:
    """What was sent to ``action``: ``carried`` goes along unseen, ``shown`` as well and can be read, ``words`` can be
    changed, ``secrets`` have to be given anew."""

    action: str
    carried: list[tuple[str, str]] = field(default_factory=list)
    shown: list[tuple[str, str]] = field(default_factory=list)
    words: list[tuple[str, str, str]] = field(default_factory=list)  # name, label, value
    secrets: list[tuple[str, str]] = field(default_factory=list)  # name, label

    def take(self, form: Form) -> None:
        for name, values in form.typed().items():
            label = LABELS.get(name, name.capitalize())
            if name in SECRETS:
                self.secrets.append((name, label))
                continue
            if name in WORDS:
                self.words.append((name, label, values[0]))
                continue
            self.carried += [(name, value) for value in values]
            if name == "id":
                self.shown.append(("Ticked", f"{len(values)} task{'s' if len(values) != 1 else ''}"))
            elif not is_of_its_time(name) and name not in _ITS_OWN and any(values):
                self.shown.append((label, ", ".join(values)))


async def kept_form(request: Request) -> KeptForm | None:
    """Returns what a form of one of our pages has sent; None of anything else.

    Nobody can be asked who it is while the store is away. But whose browser it is, is known by its cookie, and the
    form's token is made of that: what another site has sent is not shown, with a button that sends it from here."""
    if request.method != "POST":
        return None
    try:
        form = await read_form(request)
        door.check_own(request, form.text("csrf") or "")
    except RedriveError:
        return None
    kept = KeptForm(here(request.url.path))
    kept.take(form)
    return kept
