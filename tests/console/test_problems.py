"""Every problem of the overview leads somewhere: to the page that mends it, or to a command that can be copied."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from redrive.console.door import HOME
from redrive.console.templates_env import fragment
from redrive.kernel.diagnosis import Finding, Level

PAGES = [
    ("failures", ("cause", "0123456789abcdef"), "/causes/0123456789abcdef"),
    ("failures", None, "/failures"),
    ("operation", ("operation", "o1"), "/operations/o1"),
    ("approval", ("approval", "a1"), "/approvals"),
    ("silent_worker", ("worker", "w1"), "/workers"),
    ("lost_tasks", ("worker", "w1"), "/workers"),
    ("no_worker", None, "/workers"),
    ("stale_leases", None, "/workers"),
    ("no_worker", ("queue", "a b"), "/tasks?queue=a+b&amp;state=queued"),
    ("backlog", ("queue", "mail"), "/tasks?queue=mail&amp;state=queued"),
    ("paused", ("queue", "mail"), "/queues"),
    ("paused", ("schedule", "nightly"), "/schedules"),
    ("quota", ("kind", "SEND"), "/queues"),
    ("unknown_feature", None, "/tasks?state=queued"),
    ("size", None, "/settings"),
]


def shown(finding: Finding) -> str:
    told = SimpleNamespace(problems=[finding], whole=True)
    return fragment("regions/problems.html", shown=told, now=datetime.now(UTC))


@pytest.mark.parametrize(("code", "about", "page"), PAGES)
def test_a_problem_has_its_page(code: str, about: tuple[str, str] | None, page: str) -> None:
    text = shown(Finding(Level.WARNING, code, "something", "do this", about))
    assert re.findall(r'<a class="button" href="([^"]*)"', text) == [HOME + page]


@pytest.mark.parametrize("code", ["dead_rows", "broken_index", "journal", "migrations", "of another version"])
def test_what_no_page_mends_has_a_command_to_copy(code: str) -> None:
    text = shown(Finding(Level.CRITICAL, code, "something", 'vacuum "redrive"."task";'))
    assert 'data-copy="vacuum &#34;redrive&#34;.&#34;task&#34;;"' in text
