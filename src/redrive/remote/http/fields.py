"""Reads what an answer of a provider says, by the paths that were configured."""

from __future__ import annotations

import json
from typing import Any

from redrive.kernel.placeholders import Missing, find
from redrive.kernel.wording import clean
from redrive.remote.errors import NONSENSE, ProviderError
from redrive.remote.provider import JobFailure, JobState, Status
from redrive.settings.providers import PollCall

SHOWN = 200  # characters of what came that a message quotes
MAX_ERROR = 2_000


def needed(document: Any, path: str, where: str) -> Any:
    """Returns what stands at a path; what is not there is said with what came instead."""
    try:
        return find(document, path)
    except Missing as error:
        below = f"at {error.at!r} there is" if error.at else "it is"
        raise nonsense(f"{where} has no {path!r}: {below} {shown(find(document, error.at))}") from None


def optional(document: Any, path: str) -> Any:
    """Returns what stands at a path, or None."""
    try:
        return find(document, path) if path else None
    except Missing:
        return None


def job_id(document: Any, path: str, where: str) -> str:
    """Returns a job's id. Numbers are ids, too."""
    found = needed(document, path, where)
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    if isinstance(found, str) and found:
        return found
    raise nonsense(f"{where} has no id at {path!r}, but {shown(found)}")


def status_of(job: Any, call: PollCall, where: str) -> Status:
    """Returns what an answer says about one job."""
    word = needed(job, call.status, where)
    state = call.word(word) if isinstance(word, str) else None
    if state is None:
        raise nonsense(
            f"{where} says {shown(word)} at {call.status!r}, which is not known; "
            "the table statuses of its poll says what words mean"
        )
    if state == JobState.SUCCEEDED:
        return Status.succeeded(optional(job, call.result))
    if state == JobState.FAILED:
        return Status(JobState.FAILED, failure=_failure(job, call, str(word)))
    return Status(JobState(state), _progress(optional(job, call.progress), call.progress_of))


def error_text(found: Any) -> str:
    """Returns an error as text: its message where it is a table of several things."""
    if isinstance(found, dict):
        found = next((found[name] for name in ("message", "detail", "title", "error") if found.get(name)), found)
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)
    return clean(text[:MAX_ERROR])


def _failure(job: Any, call: PollCall, word: str) -> JobFailure:
    said, code, status = (optional(job, path) for path in (call.error, call.error_code, call.error_status))
    if isinstance(said, dict):  # as many have it: the error is a table of its own
        code = said.get("code") if code is None else code
        status = said.get("status") if status is None else status
    return JobFailure(
        f"the provider says {word}" if said is None or said == "" else error_text(said),
        _http_status(status),
        str(code)[:100] if isinstance(code, str | int) and not isinstance(code, bool) else None,
    )


def _http_status(found: Any) -> int | None:
    if isinstance(found, str) and found.isdecimal():
        found = int(found[:4])
    return found if isinstance(found, int) and not isinstance(found, bool) and 400 <= found <= 599 else None


def _progress(found: Any, whole: float) -> float | None:
    """Returns the progress from 0 to 100. What is no number is unknown: a job is not held up for it."""
    if isinstance(found, str):
        try:
            found = float(found.strip().removesuffix("%"))
        except ValueError:
            return None
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
        return None
    # Bounded first: a number of hundreds of digits is no float.
    return min(max(found, 0), whole) * 100 / whole


def shown(found: Any) -> str:
    """Returns a little of what came, for a message."""
    text = repr(found)
    return clean(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def nonsense(text: str) -> ProviderError:
    return ProviderError(text, classification=NONSENSE)
