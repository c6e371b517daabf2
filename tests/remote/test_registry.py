"""Providers of an application: registered and configured, found by name, checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.cli.main import run
from redrive.errors import ConfigError, InvalidInput, WrongSetting
from redrive.remote import JobFailure, JobState, ProviderError, ProviderUnknown, RemoteItem, Status
from redrive.settings import load_settings

MEMORY = "sqlite:///:memory:"
GOOD = """
[providers.video]
base_url = "https://api.example.com/v1"
auth_env = "VIDEO_KEY"
[providers.video.start]
url = "/jobs"
[providers.video.poll]
url = "/jobs/{id}"
"""


class Render:
    """A provider of the application's own."""

    max_poll = 2

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []
        self.answers: dict[str, Any] = {}
        self.started: Any = "job-1"
        self.closed = False

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        if isinstance(self.started, Exception):
            raise self.started
        return self.started  # type: ignore[no-any-return]

    async def poll(self, ids: Sequence[str]) -> dict[str, Any]:
        self.asked.append(ids)
        for error in (self.answers[one] for one in ids if one in self.answers and isinstance(self.answers, dict)):
            if isinstance(error, OSError):
                raise error
        return self.answers

    async def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "redrive.toml"


async def test_a_provider_is_registered_found_and_closed() -> None:
    app, render = App(MEMORY), Render()
    app.provider("render", render)
    found = app.provider_of("render")
    assert found is app.provider_of("render") and list(app.providers) == ["render"] and not found.can_cancel
    assert await found.start(RemoteItem("i1"), "k") == "job-1"
    render.answers = {"a": Status.running(140), "b": Status.succeeded(1), "c": Status.running("x"), "z": 1}  # type: ignore[arg-type]
    assert await found.poll(["a", "b", "a", "c"]) == {
        "a": Status.running(100.0),
        "b": Status.succeeded(1),
        "c": Status.running(None),
    }
    assert render.asked == [["a", "b"], ["c"]], "no more than it takes at once, each once"
    with pytest.raises(InvalidInput, match="cannot cancel"):
        await found.cancel("a")
    await app.close()
    assert render.closed


async def test_a_part_that_could_not_be_asked_spoils_no_other() -> None:
    app, render = App(MEMORY), Render()
    app.provider("render", render)
    render.answers = {"a": Status.pending(), "b": Status.pending(), "c": ConnectionResetError("gone")}
    found = await app.provider_of("render").poll(["a", "b", "c", "d"])
    assert found["a"] == Status.pending() and isinstance(found["c"], ProviderError) and found["c"] is found["d"]
    assert (found["c"].transient, found["c"].reason, str(found["c"])) == (True, "connect", "render: gone")
    with pytest.raises(ProviderError, match="render: gone"):
        await app.provider_of("render").poll(["c", "d"])
    await app.close()


async def test_what_makes_no_sense_is_an_error_with_what_came() -> None:
    app, render = App(MEMORY), Render()
    app.provider("render", render)
    found = app.provider_of("render")
    render.started = None
    with pytest.raises(ProviderError, match="render: start returned None where an id of 1 to 500"):
        await found.start(RemoteItem("i1"), "k")
    render.answers = {"a": "done"}
    [answer] = (await found.poll(["a"])).values()
    assert isinstance(answer, ProviderError) and answer.transient and "poll: a returned 'done'" in str(answer)
    render.answers = ["a"]  # type: ignore[assignment]
    with pytest.raises(ProviderError, match="where a status by id was expected"):
        await found.poll(["a"])
    render.started = ValueError("no such template")
    with pytest.raises(ProviderError, match="render: no such template") as caught:
        await found.start(RemoteItem("i1"), "k")
    assert caught.value.transient, "unknown errors are tried again: the fail-safe default"
    await app.close()


class Unreadable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")

    __str__ = __repr__


@pytest.mark.parametrize(
    ("failure", "message", "code"),
    [
        (JobFailure(None), "the provider does not say why", None),  # type: ignore[arg-type]
        (JobFailure(" "), "the provider does not say why", None),
        (JobFailure(b"no", code=7), "b'no'", "7"),  # type: ignore[arg-type]
        (JobFailure(Unreadable(), code=[1]), "<Unreadable>", None),  # type: ignore[arg-type]
        (JobFailure("x", "400", True, "odd", 1, "yes"), "x", None),  # type: ignore[arg-type]
        (None, "the provider does not say why", None),
    ],
)
async def test_a_failure_is_one_whatever_it_says(failure: Any, message: str, code: str | None) -> None:
    app, render = App(MEMORY), Render()
    app.provider("render", render)
    render.answers = {"a": Status(JobState.FAILED, failure=failure), "b": Status.pending()}
    found = await app.provider_of("render").poll(["a", "b"])
    assert found["b"] == Status.pending() and isinstance(found["a"], Status) and found["a"].failure is not None
    told = found["a"].failure
    assert (told.message, told.code, told.failure_type) == (message, code, "unknown")
    await app.close()


@pytest.mark.parametrize("answer", [Unreadable(), Status(JobState.FAILED, failure="no"), Status("done")])  # type: ignore[arg-type]
async def test_one_that_makes_no_sense_spoils_no_other(answer: Any) -> None:
    app, render = App(MEMORY), Render()
    app.provider("render", render)
    render.answers = {"a": answer, "b": Status.pending()}
    found = await app.provider_of("render").poll(["a", "b"])
    assert found["b"] == Status.pending()
    assert isinstance(found["a"], ProviderError) and found["a"].transient and found["a"].reason == "provider_answer"
    await app.close()


def test_what_cannot_be_a_provider_is_refused() -> None:
    app = App(MEMORY)
    with pytest.raises(ConfigError, match="is the class Render"):
        app.provider("render", Render)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is str, without start and poll"):
        app.provider("render", "https://x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="small letters"):
        app.provider("Render!", Render())
    app.provider("render", Render())
    with pytest.raises(ConfigError, match="there is a provider 'render' already"):
        app.provider("render", Render())
    with pytest.raises(ProviderUnknown, match="did you mean render"):
        app.provider_of("rendr")
    wrong = Render()
    wrong.max_poll = 0
    with pytest.raises(ConfigError, match="max_poll of the provider other is 0"):
        app.provider("other", wrong)


async def test_configured_ones_need_their_secret_when_a_worker_starts(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(GOOD)
    app = App(MEMORY)  # enough for those who enqueue, or only look
    with pytest.raises(ConfigError, match=r"providers\.video: the environment has no VIDEO_KEY"):
        app.worker()
    monkeypatch.setenv("VIDEO_KEY", "s3cret-of-video")
    app.worker()
    assert app.provider_of("video").max_poll == 100
    with pytest.raises(ConfigError, match="in the settings"):
        app.provider("video", Render())
    await app.close()


def test_settings_show_neither_secrets_nor_tables(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(GOOD)
    monkeypatch.setenv("VIDEO_KEY", "s3cret-of-video")
    assert run(["settings", "--changed"]) == 0
    said = capsys.readouterr().out
    assert "video (http, api.example.com)" in said and "s3cret" not in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ('"/jobs"|"jobs"', r"providers.video.start.url: it begins with one / .*line 6, \[providers.video.start\]"),
        ("{id}|{job}", r"poll.url: \{job\} is not known; there are \{id\}, \{ids\}"),
        ("/{id}|", r"poll.url: it, or the body, needs either \{id\}"),
        ("{id}|{id", "a brace in .* belongs to no placeholder"),
        ("https://api|https://ann:pw@api", "a login, a query or a fragment does not belong there"),
        ("https://|ftp://", "no address that begins with http"),
        ('"VIDEO_KEY"|"sk-12345"', "no name of an environment variable"),
        ("auth_env|auth_evn", "there is no such field; did you mean auth_env"),
        ("[providers.video.poll]|[providers.video.pol]", "there is no such field; did you mean poll"),
        ("[providers.video.poll]|[providers.video.poll.x]", "providers.video.poll.url: it is needed"),
        ('auth_env = "VIDEO_KEY"|headers = { X-Api-Key = "x" }', "looks like a secret"),
        ('auth_env = "VIDEO_KEY"|type = "grpc"', "it has to be 'http'"),
        ('auth_env = "VIDEO_KEY"|idempotency_header = ""', "starts a second job"),
        ('"/jobs"|"/jobs"\nid = "a b"', "it is a path of names"),
        ('/{id}"|/{id}"\nstatuses = { ok = "fine" }', "statuses.ok: it has to be one of pending, running"),
        ("providers.video|providers.Video", "named in small letters"),
    ],
)
def test_mistakes_are_named_with_their_place(file: Path, changed: str, said: str) -> None:
    was, _, now = changed.partition("|")
    assert was in GOOD
    file.write_text(GOOD.replace(was, now))
    with pytest.raises(WrongSetting, match=f"(?si){said}") as caught:
        load_settings(url=MEMORY)
    assert "pw" not in str(caught.value) and "sk-12345" not in str(caught.value)


def test_an_address_for_callbacks_needs_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCH_CALLBACK_BASE_URL", "https://here.example")
    with pytest.raises(WrongSetting, match="it needs BATCH_CALLBACK_SECRET"):
        load_settings(url=MEMORY)
    monkeypatch.setenv("BATCH_CALLBACK_SECRET", "x" * 32)
    assert load_settings(url=MEMORY).callback_base_url == "https://here.example"
