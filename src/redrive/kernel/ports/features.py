"""Looking at a store: what features keep there."""

from __future__ import annotations

from typing import Any, Protocol


class FeatureReads(Protocol):
    """Rows of features' own tables, and the accounts that their postings move money between."""

    async def feature_rows(self, feature: str, statement: str, *args: Any) -> list[dict[str, Any]]:
        """Returns the rows of a feature's own named statement, which only reads."""

    async def answer(self, query: str, seconds: float) -> Any:
        """Returns the first value that a query of the application's own tables answers with; None where it has no row.
        It cannot write anything, and has so many seconds."""

    async def balance(self, account: str) -> int:
        """Returns what is on an account; 0 for one that nobody has used."""
