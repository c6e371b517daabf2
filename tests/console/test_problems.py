"""Every problem of the overview leads somewhere: to the page that mends it, or to a command that can be copied."""

from __future__ import annotations

import asyncio
import re
import shlex
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import pytest

from redrive import App
from redrive.console.templates_env import render
from redrive.console.visitors import HOME
from redrive.kernel.diagnosis import Finding, Level
from redrive.ops import access
from redrive.ops.access import Role
from redrive.ops.shell import NO_SHELL, shell_at, shell_for
from tests.commands import redrive
from tests.console.conftest import console, fail_some, page

PAGES = [
    ("failures", ("cause", "0123456789abcdef"), "/causes/0123456789abcdef"),
    ("operation", ("operation", "o1"), "/operations/o1"),
    ("approval", ("approval", "a1"), "/approvals"),
    ("silent_worker", ("worker", "w1"), "/workers"),
    ("no_worker", None, "/workers"),
    ("no_worker", ("queue", "a b"), "/tasks?queue=a+b&amp;state=queued"),
    ("backlog", ("queue", "mail"), "/tasks?queue=mail&amp;state=queued"),
    ("failed", ("queue", "mail"), "/failures?queue=mail"),
    ("paused", ("queue", "mail"), "/queues"),
    ("paused", ("schedule", "nightly"), "/schedules"),
    ("quota", ("kind", "SEND"), "/queues"),
    ("unknown_feature", None, "/tasks?state=queued"),
    ("size", None, "/settings"),
]


def shown(finding: Finding) -> str:
    told = SimpleNamespace(problems=[finding], whole=True, shell=NO_SHELL)
    return render("regions/problems.html", None, shown=told, now=datetime.now(UTC))


@pytest.mark.parametrize(("code", "about", "page"), PAGES)
def test_a_problem_has_its_page(code: str, about: tuple[str, str] | None, page: str) -> None:
    text = shown(Finding(Level.WARNING, code, "something", "do this", about))
    assert re.findall(r'<a class="button" href="([^"]*)"', text) == [HOME + page]


@pytest.mark.parametrize("code", ["dead_rows", "of another version"])
def test_what_no_page_mends_has_a_command_to_copy(code: str) -> None:
    text = shown(Finding(Level.CRITICAL, code, "something", 'vacuum "redrive"."task";'))
    assert 'data-copy="vacuum &#34;redrive&#34;.&#34;task&#34;;"' in text


@pytest.mark.parametrize(
    ("fix", "commands"),
    [
        (
            "redrive list --state queued --queue 'a b', then redrive show ID: it says why",
            ["redrive list --state queued --queue 'a b'", "redrive show ID"],
        ),
        (
            "redrive causes; was something deployed? redrive pause --queue q keeps the rest from failing",
            ["redrive causes", "redrive pause --queue q"],
        ),
        ("redrive causes show 2da15414640532db; look for memory", ["redrive causes show 2da15414640532db"]),
        ("start a worker: redrive work --app shop:app --queue q", ["redrive work --app shop:app --queue q"]),
        ("end it where it runs, or: select pg_terminate_backend(12);", ["select pg_terminate_backend(12);"]),
        ("check NTP on both", []),
    ],
)
def test_only_commands_are_copied_each_by_its_button(fix: str, commands: list[str]) -> None:
    text = shown(Finding(Level.CRITICAL, "code", "something", fix))
    assert [unescape(one) for one in re.findall(r'data-copy="([^"]*)"', text)] == commands
    assert unescape(re.sub(r"<[^>]*>", "", text)).count(fix) == 1


def test_what_an_exception_says_comes_before_its_code() -> None:
    text = shown(Finding(Level.WARNING, "failures", "SEND: 2 tasks failed by CODE", None, None, "KeyError: 'sku'"))
    assert text.index("<strong>KeyError") < text.rindex("SEND: 2 tasks failed by CODE")


def test_commands_among_our_words_reach_the_store() -> None:
    text = "redrive causes; mend it, then redrive causes retry FP, or redrive work --app module:app --queue q"
    at = shell_for("sqlite:////a b/x.db", "sqlite:////a b/x.db", "shop.tasks:app")
    url = "--url 'sqlite:////a b/x.db'"
    assert at.words(text) == (
        f"redrive causes {url}; mend it, then redrive causes retry {url} FP, "
        f"or redrive work {url} --app shop.tasks:app --queue q"
    )
    several = shell_at("main", None).words("redrive workers drain w1; redrive tokens")
    assert several == "redrive workers drain --connection main w1; redrive tokens"
    assert shell_at("main").words("redrive work --connection main") == "redrive work --connection main"
    hidden = shell_for("postgresql://u:secret@h/d", "postgresql://u:***@h/d", "shop:app")
    assert hidden.note and hidden.words("redrive stats") == "redrive stats" and "secret" not in hidden.note
    assert NO_SHELL.words(text) == text


@pytest.mark.anyio
async def test_what_mends_a_problem_runs_elsewhere_as_it_is_copied(app: App, tmp_path: Path) -> None:
    app.spec = "redrive_kit.examples.shots:app"
    async with console(app) as client:
        await fail_some(app, 1)
        await app.enqueue("SEND", {"to": "x"}, queue="nobody")
        html = await page(client)
        fixes = [unescape(one) for one in re.findall(r'data-copy="([^"]*)" aria-label="Copy redrive', html)]
        work = next(one for one in fixes if one.startswith("redrive work"))
        assert f"--url sqlite:///{tmp_path}/console.db" in work and f"--app {app.spec} --queue nobody" in work
        cause = shlex.split(next(one for one in fixes if one.startswith("redrive causes show")))
        (tmp_path / "elsewhere").mkdir()
        ran = await asyncio.to_thread(redrive, *cause[1:], cwd=tmp_path / "elsewhere", code=0)
        assert "TASK_PRECONDITION_FAILED" in ran.stdout
        made = await access.create(await app.store(), "vic", Role.VIEWER, actor="admin")
        await client.post(f"{HOME}/sign-in", data={"token": made.secret})
        assert str(tmp_path) not in await page(client)  # where the store is, is not for everybody


def test_commands_name_the_application_that_they_need() -> None:
    url = "sqlite:////srv/shop.db"
    shell = shell_for(url, url, "shop:app")
    assert shell.with_app("redrive outbox verify notes") == "redrive outbox verify notes --app shop:app"
    assert NO_SHELL.with_app("redrive outbox verify notes") == "redrive outbox verify notes"
    assert shell.words("mend that, then redrive outbox replay notes").endswith(
        f"redrive outbox replay --url {url} notes"
    )
