"""Says what is wrong with settings that cannot be used: which one, where, what, and how instead."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import TypeVar

from redrive.errors import WrongSetting
from redrive.settings.declare import Values, fields_of
from redrive.settings.values import Problem, Unfit

T = TypeVar("T")
SEE = "correct or remove it; then redrive settings lists all there are"


def made(kind: type[Values], make: Callable[[], T], in_file: Callable[..., str] = lambda *_: "") -> T:
    """Returns what ``make`` returns; what it finds wrong is said by the names that people have set. ``in_file`` says
    where a field stands, and what is below it."""
    try:
        return make()
    except Unfit as error:
        problems = [_told(kind, problem, in_file) for problem in error.problems]
        hints = dict.fromkeys(problem.hint or SEE for problem in error.problems)
        raise WrongSetting("settings cannot be used: " + "; ".join(problems), hint="; ".join(hints)) from None


def guess(name: str, known: Iterable[str], alike: float = 0.6) -> str:
    """Returns which known name may be meant, in brackets; nothing where none is so much ``alike``."""
    close = next(iter(difflib.get_close_matches(name.lower(), known, 1, alike)), None)
    return f" (did you mean {close}?)" if close else ""


def _told(kind: type[Values], problem: Problem, in_file: Callable[..., str]) -> str:
    field, *rest = map(str, problem.place)
    name = fields_of(kind)[field].name if field in fields_of(kind) else field
    where = in_file(field, *rest) if problem.source == "file" else ""
    return f"{'.'.join([name, *rest])}: {problem.message}{f' ({where})' if where else ''}"
