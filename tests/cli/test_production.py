"""Where one is: shown wherever somebody acts, and production is told twice before anything is made to fail there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redrive.testing import using
from tests.cli.conftest import Said

Run = Callable[..., Said]


@pytest.mark.parametrize("command", [["drill", "--patience", "0.1"], ["smoke", "http://127.0.0.1:1"]])
def test_what_makes_failures_refuses_production_unless_told_twice(
    command: list[str], redrive: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    redrive("migrate")
    monkeypatch.setenv("REDRIVE_ENV", "production")
    first = redrive(*command)
    assert first.code == 2 and "this is production" in first.err and "--in-production" in first.err
    second = redrive(*command, "--in-production")
    assert second.code == 2 and "nobody is there to ask" in second.err
    third = redrive(*command, "--in-production", "--yes")
    assert "production" not in third.err, "it goes on, and meets what there is"


def test_a_misspelt_environment_is_refused(redrive: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_ENV", "prod")
    said = redrive("stats")
    assert said.code == 2 and "REDRIVE_ENV" in said.err


def test_stats_say_where(redrive: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive("migrate")
    assert redrive("stats", "--json").json["env"] == "dev"
    monkeypatch.setenv("REDRIVE_ENV", "production")
    assert redrive("stats").out.startswith("production")


@pytest.mark.anyio
async def test_the_instance_says_where_and_smoke_asks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_ENV", "production")
    async with using() as kit:
        assert kit.api.get("/healthz").json()["env"] == "production"
