"""Reads the result of a comparison: in words, and whether the index still differs."""

from __future__ import annotations

from typing import Any

from redrive.outbox.verify.differences import Kind


def result_words(result: dict[str, Any]) -> str:
    """Returns what a comparison has found, in words; empty: nothing."""
    words = [f"{result[kind.value]:,} {kind.value}" for kind in Kind if result.get(kind.value)]
    more = ("repaired", "left", "on_their_way")
    words += [f"{result[name]:,} {name.replace('_', ' ')}" for name in more if result.get(name)]
    return ", ".join(words)


def still_differs(result: dict[str, Any]) -> bool:
    """Returns whether an index still differs from its source, after what was repaired."""
    return count_of_differences(result) > 0


def count_of_differences(result: dict[str, Any]) -> int:
    """Returns in how many documents an index still differs from its source, after what was repaired."""
    found = sum(int(result.get(kind.value) or 0) for kind in Kind)
    return max(found - int(result.get("repaired") or 0), 0) + int(result.get("left") or 0)
