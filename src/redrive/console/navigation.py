"""The pages that the console's menu and palette list, in their order. Features add theirs."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.console.door import HOME


@dataclass(slots=True, frozen=True)
class Item:
    """One page: ``path`` below the console's address; ``badge`` names the live number that stands beside it."""

    name: str
    path: str
    about: str
    badge: str | None = None

    @property
    def url(self) -> str:
        return HOME + self.path


@dataclass(slots=True, frozen=True)
class Section:
    name: str
    items: tuple[Item, ...]


SECTIONS = (
    Section(
        "See",
        (
            Item("Overview", "", "What is wrong, and how much is going on"),
            Item("Failures", "/failures", "Causes of failures, and the tasks that failed by them", "failed"),
            Item("Dead letters", "/dead-letters", "The record of every terminal failure"),
            Item("Tasks", "/tasks", "All tasks, by state, kind, queue, scope and trace"),
        ),
    ),
    Section(
        "Act",
        (
            Item("Operations", "/operations", "Bulk retries and purges, live", "operations"),
            Item("Approvals", "/approvals", "What waits for a second person", "approvals"),
            Item("Audit", "/audit", "Who did what, when and why"),
        ),
    ),
    Section(
        "Run",
        (
            Item("Queues & limits", "/queues", "Pause, resume, quotas and rates"),
            Item("Workers", "/workers", "Who is alive, and what each runs"),
            Item("Schedules", "/schedules", "Periodic tasks: next and last runs"),
            Item("Settings", "/settings", "What is configured, and where it comes from"),
        ),
    ),
)
