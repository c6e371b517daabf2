"""``redrive providers``: what there is, and one job at one of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive.testing.provider import SimulatedProvider, simulated_provider
from redrive_kit.simulators.provider.behaviour import toml_of
from tests.cli.conftest import here, redrive

__all__ = ["here", "redrive"]
OWN = """
from redrive import App
from redrive.remote import Status


class Printer:
    async def start(self, item, idempotency_key):
        return "p1"

    async def poll(self, ids):
        return {}


app = App("sqlite:///:memory:")
app.provider("printer", Printer())
"""


@pytest.fixture(scope="module")
def simulated() -> Iterator[SimulatedProvider]:
    with simulated_provider("--duration", "0") as made:
        yield made


@pytest.fixture
def configured(here: Path, simulated: SimulatedProvider) -> None:
    broken = toml_of("http://127.0.0.1:9", "secretive", auth_env="NO_SUCH_SECRET")
    (here / "redrive.toml").write_text(f"{toml_of(simulated.url, 'video')}\n{broken}\n")
    (here / "printing.py").write_text(OWN)


@pytest.mark.usefixtures("configured")
def test_they_are_listed_with_what_is_missing(redrive: Any, simulated: SimulatedProvider) -> None:
    rows = {row["name"]: row for row in redrive("providers", "--app", "printing:app", "--json").json["items"]}
    assert list(rows) == ["video", "secretive", "printer"]
    assert (rows["video"]["problem"], rows["printer"]["type"]) == (None, "Printer")
    assert "the environment has no NO_SUCH_SECRET" in rows["secretive"]["problem"]
    said = redrive("providers", "list")
    assert said.code == 1 and "ready" in said.out and simulated.url.removeprefix("http://") in said.out


@pytest.mark.usefixtures("configured")
def test_without_httpx_the_listing_says_what_to_install(redrive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    for name in [name for name in sys.modules if name.startswith("redrive.remote.http")]:
        monkeypatch.delitem(sys.modules, name)
    said = redrive("providers")
    assert said.code == 1 and said.out.count("→ pip install '/path/to/checkout[http]'") == 1


def test_none_is_no_failure(redrive: Any) -> None:
    assert redrive("providers").code == 0


@pytest.mark.usefixtures("configured")
def test_one_job_shows_whether_the_configuration_is_right(redrive: Any, simulated: SimulatedProvider) -> None:
    found = redrive("providers", "try", "video", '{"text": "a cat"}', "--key", "k1", "--json").json
    assert found["state"] == "succeeded" and found["result"] == {"echo": {"text": "a cat"}}
    again = redrive("providers", "try", "video", "--key", "k1")
    assert again.code == 0 and found["job"] in again.out and "succeeded" in again.out
    failed = redrive("providers", "try", "video", '{"simulate": {"outcome": "network"}}')
    assert failed.code == 0 and "fetch failed" in failed.out and "counts as network" in failed.out
    slow = redrive("providers", "try", "video", '{"simulate": {"duration": 600}}', "--wait", "2")
    assert slow.code == 3 and "after 2 s" in slow.err and "--key try-" in slow.err
    simulated.control(down_for=600)
    down = redrive("providers", "try", "video")
    simulated.control(down_for=0)
    assert down.code == 3 and "answered 503: down for a while" in down.err and "it may succeed later" in down.err


@pytest.mark.usefixtures("configured")
def test_what_cannot_be_is_said(redrive: Any) -> None:
    assert redrive("providers", "try", "vido").code == 2
    assert "no JSON" in redrive("providers", "try", "video", "{").err
    assert "NO_SUCH_SECRET" in redrive("providers", "try", "secretive").err
    lost = redrive("providers", "try", "printer", "--app", "printing:app")
    assert lost.code == 3 and "poll knows nothing of p1" in lost.err
    refused = redrive("providers", "try", "video", '{"simulate": {"outcome": "magic"}}')
    assert refused.code == 2 and "answered 400" in refused.err and "the same again will not help" in refused.err
