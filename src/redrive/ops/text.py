"""Text for people: numbers with their nouns, spans of time."""

from redrive.kernel.wording import counted, percent, span

__all__ = ["counted", "percent", "span"]
