"""Text for people: numbers with their nouns."""

from __future__ import annotations


def counted(n: int, noun: str = "task") -> str:
    """Returns ``1 task``, ``2 tasks``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
