"""What a worker imports before it claims."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from redrive import App, Context
from redrive.errors import InvalidInput
from redrive.worker.prepare import named, preload


def app_of(**options: object) -> App:
    app = App("sqlite:///:memory:")

    @app.task("DRAW", queue="pictures", **options)  # type: ignore[arg-type]
    async def draw(ctx: Context, width: int) -> None: ...

    return app


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "heavy_one.py").write_text("")
    (tmp_path / "heavy_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("heavy_one", "heavy_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)


async def test_modules_of_the_queues_it_serves(modules: None) -> None:
    app = app_of(preload="heavy_one")
    await preload(app.registry, ("default",))
    assert "heavy_one" not in sys.modules
    await preload(app.registry, ("pictures",))
    assert "heavy_one" in sys.modules


def test_what_reads_payloads_is_imported_where_there_are_handlers() -> None:
    app = app_of()
    assert named(app.registry, ("others",)) == []
    assert named(app.registry, ("pictures",)) == ["redrive.handlers.typed"]


async def test_a_module_that_cannot_be_imported_is_left_to_its_handler(
    modules: None, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(preload=["heavy_missing", "heavy_broken", "heavy_one"])
    with caplog.at_level(logging.INFO, "redrive.worker"):
        await preload(app.registry, ("pictures",))
    assert "heavy_one" in sys.modules
    [said] = caplog.records
    assert said.getMessage() == "heavy_broken cannot be imported"


@pytest.mark.parametrize("given", ["not a module", "a..b", [1]])
def test_what_is_no_name_of_a_module_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput, match="preload= of DRAW lists names of modules"):
        app_of(preload=given)
