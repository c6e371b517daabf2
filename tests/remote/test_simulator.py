"""The simulated provider, as the process that it is, and the configured provider against it."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.errors import ConfigError
from redrive.remote import JobState, ProviderError, RemoteItem, RemoteProvider, Status
from redrive.settings import load_settings
from redrive.testing.provider import SimulatedProvider, simulated_provider
from redrive_kit.simulators.provider.behaviour import toml_of
from redrive_kit.simulators.provider.jobs import KeptJobs

MEMORY = "sqlite:///:memory:"


@pytest.fixture(scope="module")
def running() -> Iterator[SimulatedProvider]:
    with simulated_provider("--duration", "0", "--spread", "0", "--page-size", "2") as made:
        yield made


@pytest.fixture
def simulated(running: SimulatedProvider) -> Iterator[SimulatedProvider]:
    request = urllib.request.Request(f"{running.url}/_seen", method="DELETE")
    urllib.request.urlopen(request).close()
    before = running.control()
    yield running
    running.control(**before)


@pytest.fixture
async def provider(simulated: SimulatedProvider) -> Any:
    app = App(MEMORY, settings=load_settings(url=MEMORY, providers={"video": {**simulated.table, "timeout": 60}}))
    yield app.provider_of("video")
    await app.close()


async def fails(call: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call
    return caught.value


async def test_jobs_run_and_end_as_their_items_wish(simulated: SimulatedProvider, provider: RemoteProvider) -> None:
    wishes: dict[str, dict[str, Any]] = {
        "fine": {},
        "slow": {"duration": 600},
        "late": {"waiting": 600},
        "network": {"outcome": "network"},
        "param_error": {"outcome": "param_error"},
        "model_error": {"outcome": "model_error"},
        "timeout": {"outcome": "timeout"},
        "unknown": {"outcome": "unknown"},
    }
    jobs = {
        name: await provider.start(RemoteItem(name, {"simulate": wish}), f"key-{name}") for name, wish in wishes.items()
    }
    found = {name: (await provider.poll([*jobs.values()]))[job] for name, job in jobs.items()}
    assert found["fine"] == Status.succeeded({"echo": {"simulate": {}}})
    assert found["slow"] == Status.running(0.0) and found["late"] == Status(JobState.PENDING, 0.0)
    for name in ("network", "param_error", "model_error", "timeout", "unknown"):
        status = found[name]
        assert isinstance(status, Status) and status.failure is not None and status.failure.failure_type == name
    seen = simulated.seen()
    assert seen["poll_requests"] == 8 * 4, "eight jobs on pages of two"
    await provider.cancel(jobs["slow"])
    assert await provider.poll([jobs["slow"], "job-999999"]) == {jobs["slow"]: Status.cancelled()}


async def test_a_key_starts_one_job_however_often_it_is_sent(
    simulated: SimulatedProvider, provider: RemoteProvider
) -> None:
    jobs = {await provider.start(RemoteItem("i1", {"n": 1}), "key-1") for _ in range(3)}
    assert len(jobs) == 1 and await provider.start(RemoteItem("i2", {"n": 1}), "key-2") not in jobs
    seen = simulated.seen()
    assert (seen["jobs"], seen["starts"], seen["keys"]) == (2, 4, {"key-1": 3, "key-2": 1})


@pytest.mark.parametrize(("how", "reason"), [("503", "http_5xx"), ("drop", "connect"), ("hang", "timeout")])
async def test_an_outage_begins_and_ends(simulated: SimulatedProvider, how: str, reason: str) -> None:
    # Only who hangs is waited for in vain; the others have time to answer on a busy machine.
    table = {**simulated.table, "timeout": 1 if how == "hang" else 30}
    patient = {**simulated.table, "timeout": 30}
    app = App(MEMORY, settings=load_settings(url=MEMORY, providers={"video": table, "patient": patient}))
    provider = app.provider_of("video")
    await app.provider_of("patient").poll(["job-0"])  # what the first request imports takes none of that time
    assert simulated.control(down_for=600, down_as=how)["down_for"] > 590
    for call in (provider.start(RemoteItem("i1"), "key-1"), provider.poll(["job-1"])):
        error = await fails(call)
        assert (error.transient, error.reason) == (True, reason)
    seen = simulated.seen()
    assert seen["keys"] == {}
    assert seen["refused"] == 2 or (how == "hang" and seen["refused"] < 2)  # it may give up before it was heard
    simulated.control(down_for=0)
    assert await app.provider_of("patient").start(RemoteItem("i1"), "key-1")
    await app.close()


async def test_errors_and_limits(simulated: SimulatedProvider, provider: RemoteProvider) -> None:
    simulated.control(error_share=1)
    assert (await fails(provider.start(RemoteItem("i1"), "key-1"))).status_code == 500
    simulated.control(error_share=0, rate=0.01)
    errors = [await fails(provider.start(RemoteItem("i1"), "key-1")) for _ in range(2)]
    assert errors[-1].status_code == 429 and errors[-1].reason == "http_429"
    assert 1 <= int(errors[-1].headers["Retry-After"]) <= 101


def test_bad_requests_are_refused(simulated: SimulatedProvider) -> None:
    for path, body in [
        ("/_control", b'{"failures": {"flood": 1}}'),
        ("/_control", b'{"failures": {"timeout": 0.7, "network": 0.7}}'),
        ("/_control", b'{"latncy": 1}'),
        ("/_control", b'{"down_for": -1}'),
        ("/_control", b"[]"),
        ("/jobs", b"{"),
        ("/jobs", b'{"simulate": {"outcome": "magic"}}'),
        ("/jobs", b'{"simulate": {"duration": "long"}}'),
        ("/jobs/search", b"{}"),
    ]:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{simulated.url}{path}", body)
        assert caught.value.code == 400, (path, body)
        assert b"message" in caught.value.read()
    assert simulated.control()["failures"] == {}


async def test_a_token_is_asked_for_and_sigterm_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated_provider("--token", "only-a-game") as made:
        assert made.table["auth_env"] == "SIMULATOR_TOKEN"
        monkeypatch.setenv("SIMULATOR_TOKEN", "wrong")
        app = App(MEMORY, settings=load_settings(url=MEMORY, providers={"video": made.table}))
        error = await fails(app.provider_of("video").start(RemoteItem("i1"), "k"))
        assert (error.status_code, error.failure_type) == (401, "model_error") and "wrong" not in str(error).split(":")
        monkeypatch.setenv("SIMULATOR_TOKEN", "only-a-game")
        app = App(MEMORY, settings=load_settings(url=MEMORY, providers={"video": made.table}))
        assert await app.provider_of("video").start(RemoteItem("i1"), "k")
        await app.close()
        made.process.send_signal(signal.SIGTERM)
        assert made.process.wait(20) == 0


def test_jobs_are_known_after_a_restart(tmp_path: Path) -> None:
    def seen(*paths: str) -> list[Any]:
        """Starts or asks for jobs at a provider that begins anew, and is killed at the end."""
        with simulated_provider("--keep", str(file), "--duration", "0") as provider:
            body = b'{"simulate": {"outcome": "timeout"}}'
            found = []
            for path in paths:
                data = body if path == "/jobs" else b"" if path.endswith("cancel") else None
                request = urllib.request.Request(f"{provider.url}{path}", data, {"Idempotency-Key": "k"})
                with urllib.request.urlopen(request, timeout=30) as answer:
                    found.append(json.load(answer))
            provider.process.kill()
            return found

    file = tmp_path / "jobs"
    [started] = seen("/jobs")
    with file.open("a") as unfinished:
        unfinished.write('{"id": "job-0')
    [again, shown] = seen("/jobs", f"/jobs/{started['id']}")
    assert again["id"] == started["id"] == "job-000001" and shown["error"]["code"] == "JOB_TIMEOUT"
    with pytest.raises(ConfigError, match="cannot be kept"):
        KeptJobs(tmp_path, now=0)


def test_what_it_prints_for_the_file_is_what_it_is(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redrive.toml").write_text(toml_of("http://127.0.0.1:8330"))
    assert str(load_settings(url=MEMORY).providers) == "simulated (http, 127.0.0.1:8330)"
