"""What one person may do alone, across processes and faces: command line beside command line, and beside HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from redrive.cli.main import run

ANSWERS = ["--fixed", "the bucket exists", "--idempotent"]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, here: Any) -> str:
    found = "sqlite:///race.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    assert run(["migrate", "--url", found]) == 0
    return str(found)


def fail(redrive: Callable[..., Any], url: str, count: int) -> list[str]:
    ids = [
        redrive("enqueue", "SYSTEM_FAIL_ALWAYS", "--max-attempts", 1, "--url", url, "--json").json["id"]
        for _ in range(count)
    ]
    redrive("work", "--stop-when-empty", "--url", url)
    assert redrive("failed", "--url", url, "--json").json["total"] == count
    return ids


def test_two_processes_of_one_person(redrive: Any, start: Any, url: str) -> None:
    ids = fail(redrive, url, 6)
    halves = [
        start("retry", *ids[half : half + 3], "--by", name, "--url", url, REDRIVE_APPROVALS_ABOVE="4")
        for half, name in ((0, "ann"), (3, "Ann"))
    ]
    assert sorted(process.ends() for process in halves) == [0, 1]
    assert redrive("failed", "--url", url, "--json").json["total"] == 3


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_http_and_command_line_count_together(redrive: Any, start: Any, url: str, monkeypatch: Any) -> None:
    ids = fail(redrive, url, 6)
    monkeypatch.setenv("REDRIVE_APPROVALS_ABOVE", "4")
    first = redrive("tokens", "create", "ann", "--url", url, "--json").json
    up = start("up", "--port", 0, "--json", "--url", url)
    base = up.document()["http"]

    def post(token: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            f"{base}/api/tasks/dead-letters/retry",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    redrive("pause", "--queue", "default", "--url", url)
    assert post(first["token"], {"taskIds": ids[:3]})[0] == 200
    redrive("tokens", "revoke", first["id"], "--url", url)
    second = redrive("tokens", "create", "ANN", "--url", url, "--json").json
    status, problem = post(second["token"], {"taskIds": ids[3:]})
    assert (status, problem["code"]) == (409, "APPROVAL_NEEDED") and "the 3 of ANN" in problem["detail"]
    refused = redrive("retry", *ids[3:], "--by", "ann", "--url", url)
    assert refused.code == 1 and "a second operator has to agree" in refused.err
    asked = redrive("retry", "--kind", "SYSTEM_FAIL_ALWAYS", "--yes", "--by", "ann", "--url", url, "--json").json
    assert asked["operation"]["status"] == "waiting" and "the 3 of ann" in asked["approval"]["needed"]
    assert redrive("retry", *ids[3:], "--by", "bob", "--url", url).code == 0
