"""What a batch of either sort is to be, and what does not go together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from redrive.batches.task_input import Given
from redrive.errors import InvalidInput

_OF_JOBS = ("provider", "account", "price", "webhook_url", "max_in_flight")
_OF_TASKS = ("on_complete", "on_success")


@dataclass(slots=True, frozen=True, kw_only=True)
class BatchRequest:
    """What was said of a batch, besides its items; None is what was not. ``called``: what a face calls these."""

    name: str | None = None
    key: str | None = None
    meta: Any = None
    scope: str | None = None
    on_complete: Given | None = None
    on_success: Given | None = None
    provider: str | None = None
    account: str | None = None
    price: int | None = None
    webhook_url: str | None = None
    max_in_flight: int | None = None
    called: Callable[[str], str] = str

    def check(self, tasks: bool, items: bool) -> None:
        """Refuses what is of both sorts, or of none, by its name."""
        if tasks == items:
            both = "tasks and items do not go together" if tasks else "there are neither tasks nor items"
            raise InvalidInput(f"{both}: {_SORTS}", hint=self._hint)
        if items and self.provider is None:
            raise InvalidInput(f"{self.called('provider')} is missing: {_SORTS}", hint=self._hint)
        wrong = [self.called(name) for name in (_OF_JOBS if tasks else _OF_TASKS) if getattr(self, name) is not None]
        if wrong:
            sort = "jobs at a provider" if tasks else "tasks"
            raise InvalidInput(f"{', '.join(wrong)}: only for batches of {sort}", hint=self._hint)

    @property
    def _hint(self) -> str:
        return f"with {self.called('provider')} the items are jobs there, without it they are tasks"

    def of_tasks(self) -> dict[str, Any]:
        """Returns the arguments for a batch of tasks."""
        return {name: value for name, value in self._given().items() if name not in _OF_JOBS}

    def of_jobs(self) -> dict[str, Any]:
        """Returns the arguments for a batch of jobs."""
        given = {name: value for name, value in self._given().items() if name not in _OF_TASKS}
        return {**given, "price": self.price or 0}

    def _given(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "called"}


_SORTS = "a batch is of tasks, or of items that are jobs at a provider"
