"""What a search server refuses, in its words."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """An error of a request, or of one document in a bulk."""

    def __init__(self, status: int, kind: str, reason: str, cause: str | None = None) -> None:
        super().__init__(reason)
        self.status, self.kind, self.reason, self.cause = status, kind, reason, cause

    def error(self) -> Any:
        """Returns it as part of an answer."""
        if not self.kind:
            return self.reason
        told: dict[str, Any] = {"type": self.kind, "reason": self.reason}
        return told if self.cause is None else {**told, "caused_by": {"type": "exception", "reason": self.cause}}

    def answer(self) -> dict[str, Any]:
        """Returns it as a whole answer."""
        return {"error": self.error(), "status": self.status}


def no_index(name: str) -> Refusal:
    return Refusal(404, "index_not_found_exception", f"no such index [{name}]")


def unfit(reason: str, cause: str | None = None) -> Refusal:
    """A document that does not fit the types of an index."""
    return Refusal(400, "mapper_parsing_exception", reason, cause)


def wrong(reason: str) -> Refusal:
    return Refusal(400, "illegal_argument_exception", reason)
