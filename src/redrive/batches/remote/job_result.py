"""What is kept of a job's result. A customer pays for what they can have: a result that no store holds is none."""

from __future__ import annotations

from typing import Any

from redrive.errors import PayloadInvalid
from redrive.kernel.outcome import Fail
from redrive.kernel.payload import encode
from redrive.kernel.wording import clean

NOT_STORED = "RESULT_NOT_STORED"


def kept_result(job: str, result: Any) -> Any:
    """Returns a result as it can be kept, characters that no store holds written out; else a failure that says where
    the result is."""
    try:
        encode(result, "its result")
        return result
    except PayloadInvalid:
        pass
    try:
        cleaned = _cleaned(result)
        encode(cleaned, "its result")
        return cleaned
    except PayloadInvalid as error:
        told = error.message
    except RecursionError:
        told = "its result is nested too deep"
    message = f"job {job} succeeded, and is not charged: {told}. The provider has it"
    return Fail(NOT_STORED, message)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(one) for one in value]
    return value
