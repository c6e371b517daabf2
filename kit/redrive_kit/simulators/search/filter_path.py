"""The parameter ``filter_path``: which parts of an answer are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def filtered(answer: Any, wanted: str) -> Any:
    """Returns the parts of an answer that ``a.*.b,c`` names; lists are gone through."""
    return _kept(answer, [path.split(".") for path in wanted.split(",")]) if wanted else answer


def _kept(value: Any, paths: Sequence[Sequence[str]]) -> Any:
    if any(not path for path in paths):
        return value
    if isinstance(value, list):
        return [found for one in value if (found := _kept(one, paths))]
    if not isinstance(value, dict):
        return {}
    kept = {}
    for name, inner in value.items():
        fitting = [path[1:] for path in paths if path[0] in (name, "*")]
        if fitting and (found := _kept(inner, fitting)) not in ({}, []):
            kept[name] = found
    return kept
