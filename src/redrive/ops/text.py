"""Text for people: numbers with their nouns, spans of time."""

from redrive.kernel.wording import counted, span

__all__ = ["counted", "span"]
