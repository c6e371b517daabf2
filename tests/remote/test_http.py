"""The provider over HTTP: what it sends, and what it makes of each answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from redrive.errors import ConfigError
from redrive.kernel.classify import Classification, FailureRules
from redrive.kernel.failure import failure_of
from redrive.remote import JobState, ProviderError, RemoteItem, RemoteProvider, Status
from redrive.remote.http_provider import HttpProvider
from redrive.settings.providers import parse_providers
from tests.remote.conftest import Answer, Request, Server

POLL_EACH = {"url": "/jobs/{id}"}
POLL_MANY = {"url": "/jobs?ids={ids}", "list": "jobs"}


def provider(server: Server, rules: FailureRules | None = None, **given: Any) -> RemoteProvider:
    table = {"base_url": f"{server.url}/v1", "start": {"url": "/jobs"}, "poll": POLL_EACH, **given}
    made = HttpProvider(parse_providers({"video": table})["video"])
    return RemoteProvider("video", made, rules or FailureRules())


async def fails(call: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call
    return caught.value


async def test_a_start_sends_the_item_the_key_and_the_secret(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIDEO_KEY", "s3cret-of-video")
    server.always({"job": {"id": 17}})
    body = {
        "prompt": "{payload.text}",
        "title": "for {payload.name}!",
        "size": "{payload.size}",
        "hook": "{callback_url?}",
    }
    video = provider(server, auth_env="VIDEO_KEY", start={"url": "/jobs/{payload.name}", "body": body, "id": "job.id"})
    job = await video.start(RemoteItem("i1", {"text": "a cat", "name": "a/b c", "size": [1, 2]}), "key-1")
    [asked] = server.asked
    assert job == "17"
    assert (asked.method, asked.path) == ("POST", "/v1/jobs/a%2Fb%20c")
    assert asked.body == {"prompt": "a cat", "title": "for a/b c!", "size": [1, 2]}
    assert asked.headers["idempotency-key"] == "key-1"
    assert asked.headers["authorization"] == "Bearer s3cret-of-video"
    await video.start(RemoteItem("i1", {"text": "", "name": "x", "size": 0}, "https://here/cb"), "key-2")
    assert server.asked[-1].body["hook"] == "https://here/cb"
    await video.close()


async def test_what_an_item_lacks_ends_it_before_anything_is_sent(server: Server) -> None:
    video = provider(server, start={"url": "/jobs", "body": {"prompt": "{payload.text}"}})
    error = await fails(video.start(RemoteItem("i1", {"txt": "a cat"}), "k"))
    assert str(error) == "video: the item has no 'payload.text', which the template of start asks for"
    assert (error.transient, error.failure_type) == (False, "param_error")
    error = await fails(video.start(RemoteItem("i1", {"text": float("nan")}), "k"))
    assert "cannot be sent as JSON" in str(error) and not error.transient
    assert server.asked == []


@pytest.mark.parametrize(
    ("status", "transient", "reason", "kind"),
    [
        (429, True, "http_429", "network"),
        (500, True, "http_5xx", "model_error"),
        (504, True, "http_5xx", "timeout"),
        (408, True, "http_408", "timeout"),
        (401, False, "http_4xx", "model_error"),
        (400, False, "http_4xx", "param_error"),
        (422, False, "http_4xx", "param_error"),
    ],
)
async def test_a_status_decides(server: Server, status: int, transient: bool, reason: str, kind: str) -> None:
    server.always({"error": {"message": "no such prompt", "code": "bad_prompt"}}, status, Retry_After="7")
    error = await fails(provider(server).start(RemoteItem("i1"), "k"))
    assert (error.transient, error.reason, error.failure_type, error.status_code) == (transient, reason, kind, status)
    assert str(error) == f"video: POST /jobs answered {status}: no such prompt" and error.code == "bad_prompt"
    failure = failure_of(error)  # what a handler that raises it leaves behind
    assert (failure.reason, failure.type, failure.retryable) == (reason, kind, transient)
    assert failure.retry_after == (7.0 if transient else None)


async def test_an_exception_decides(server: Server) -> None:
    server.close()
    error = await fails(provider(server).start(RemoteItem("i1"), "k"))
    assert (error.transient, error.reason, error.failure_type) == (True, "connect", "network")


async def test_a_hang_ends_with_the_time_limit(server: Server) -> None:
    import threading

    over = threading.Event()

    def hang(_: Request) -> Answer:
        over.wait(20)
        return Answer({})

    server.answer = hang
    error = await fails(provider(server, timeout=0.2).start(RemoteItem("i1"), "k"))
    assert (error.transient, error.reason, error.failure_type) == (True, "timeout", "timeout")
    over.set()


async def test_an_applications_rules_come_first(server: Server) -> None:
    rules = FailureRules(
        classify=[lambda error: Classification("quota", "network", True) if "quota" in str(error) else None]
    )
    server.always({"error": "quota exceeded"}, 403)
    error = await fails(provider(server, rules).start(RemoteItem("i1"), "k"))
    assert (error.transient, error.reason, error.failure_type) == (True, "quota", "network")


async def test_jobs_are_looked_at_one_by_one(server: Server) -> None:
    answers: Mapping[str, Answer] = {
        "/v1/jobs/a": Answer({"status": "queued"}),
        "/v1/jobs/b": Answer({"status": "In-Progress", "progress": "42%"}),
        "/v1/jobs/c": Answer({"status": "done", "result": {"url": "x"}}),
        "/v1/jobs/d": Answer({"status": "failed", "error": {"message": "too long", "status": 400, "code": "len"}}),
        "/v1/jobs/e": Answer({"status": "canceled"}),
        "/v1/jobs/f": Answer({"error": "unknown job"}, 404),
        "/v1/jobs/g": Answer({"error": "oops"}, 503),
        "/v1/jobs/h": Answer({"status": "melted"}),
    }
    server.answer = lambda request: answers[request.path]
    found = await provider(server).poll(list("abcdefgh"))
    assert set(found) == set("abcdegh"), "what the provider does not know is left out"
    assert found["a"] == Status.pending()
    assert found["b"] == Status.running(42.0)
    assert found["c"] == Status.succeeded({"url": "x"})
    assert found["e"] == Status.cancelled()
    failed = found["d"]
    assert isinstance(failed, Status) and failed.state is JobState.FAILED and failed.failure is not None
    assert (failed.failure.message, failed.failure.code, failed.failure.failure_type) == (
        "too long",
        "len",
        "param_error",
    )
    assert isinstance(found["g"], ProviderError) and found["g"].transient
    assert isinstance(found["h"], ProviderError) and found["h"].transient
    assert "says 'melted' at 'status', which is not known" in str(found["h"])


async def test_all_polls_failing_is_the_providers_trouble(server: Server) -> None:
    server.always({}, 503)
    assert (await fails(provider(server).poll(["a", "b"]))).status_code == 503


async def test_many_jobs_are_one_request_and_pages_are_read(server: Server) -> None:
    def answer(request: Request) -> Answer:
        if "cursor=p2" in request.path:
            return Answer({"jobs": [{"id": "c", "status": "running", "progress": 0.5}]})
        listed = [{"id": "a/1", "status": "done"}, {"id": "b", "status": "pending"}, {"id": "other", "status": "done"}]
        return Answer({"jobs": listed, "next": "p2"})

    server.answer = answer
    video = provider(server, poll={**POLL_MANY, "next": "next", "progress_of": 1, "max": 3})
    found = await video.poll(["a/1", "b", "c"])
    assert found == {"a/1": Status.succeeded(), "b": Status.pending(), "c": Status.running(50.0)}
    assert [one.path for one in server.asked] == ["/v1/jobs?ids=a%2F1,b,c", "/v1/jobs?ids=a%2F1,b,c&cursor=p2"]
    await video.poll(["a/1", "b", "c", "d"])
    assert server.asked[-2].path == "/v1/jobs?ids=d", "a fourth needs a request of its own"


async def test_many_jobs_may_be_asked_for_in_a_body(server: Server) -> None:
    server.always({"data": {"a": {"state": "ok"}, "b": {"state": "gone"}}})
    poll = {
        "url": "/jobs/search",
        "method": "POST",
        "body": {"ids": "{ids}"},
        "list": "data",
        "status": "state",
        "statuses": {"OK": "succeeded", "gone": "cancelled"},
    }
    assert await provider(server, poll=poll).poll(["a", "b"]) == {"a": Status.succeeded(), "b": Status.cancelled()}
    assert server.asked[0].body == {"ids": ["a", "b"]}


async def test_a_next_page_elsewhere_gets_no_secret(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIDEO_KEY", "s3cret-of-video")
    server.always({"jobs": [], "next": "http://evil.example/jobs"})
    video = provider(server, auth_env="VIDEO_KEY", poll={**POLL_MANY, "next": "next"})
    error = await fails(video.poll(["a"]))
    assert "another host" in str(error) and len(server.asked) == 1
    server.answer = lambda request: Answer(
        {"jobs": [{"id": "a", "status": "done"}]} if "page=2" in request.path else {"jobs": [], "next": "/v1/x?page=2"}
    )
    assert await video.poll(["a"]) == {"a": Status.succeeded()}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"jobs": "many"}, "no list of jobs, but 'many'"),
        ({}, "has no 'jobs': it is {}"),
        ([1], r"has no 'jobs': it is \[1\]"),
        ({"jobs": [{"nr": 1}]}, "a job in the answer to poll has no 'id'"),
        ({"jobs": [], "next": "p"}, "no next page"),
        (b"<html>please log in", "answered no JSON, but nothing that says what it is: b'<html>"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_told_and_gives_nothing_up(
    server: Server, answer: Any, said: str
) -> None:
    server.always(answer)
    with pytest.raises(ProviderError, match=said) as caught:
        await provider(server, poll={**POLL_MANY, "next": "next"}).poll(["a"])
    assert caught.value.transient and caught.value.reason == "provider_answer" and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"job": {}}, "has no 'job.id': at 'job' there is {}"),
        ({"job": {"id": None}}, "has no id at 'job.id', but None"),
        ({"job": {"id": "x" * 600}}, "an id of 1 to 500 characters"),
    ],
)
async def test_a_start_without_an_id_may_be_repeated_with_its_key(server: Server, answer: Any, said: str) -> None:
    server.always(answer)
    with pytest.raises(ProviderError, match=said) as caught:
        await provider(server, start={"url": "/jobs", "id": "job.id"}).start(RemoteItem("i1"), "k")
    assert caught.value.transient and len(str(caught.value)) < 600


async def test_a_job_without_an_id_spoils_no_other(server: Server) -> None:
    listed = [{"status": "done"}, {"id": "a", "status": "done"}, {"id": "b", "status": "running", "progress": 10**400}]
    server.always({"jobs": listed})
    found = await provider(server, poll=POLL_MANY).poll(["a", "b", "c"])
    assert (found["a"], found["b"]) == (Status.succeeded(), Status.running(100.0))
    missing = found["c"]  # perhaps it is the first: nobody can say that it is not known
    assert isinstance(missing, ProviderError) and missing.transient and "has no 'id'" in str(missing)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([("Retry-After", "120")], "120"),
        ([("Retry-After", "Thu, 01 Jan 2099 00:00:00 GMT")], "86400"),
        ([("Retry-After", "Tue, 17 Nov 2020 06:00:00 GMT")], None),
        ([("Retry-After-Ms", "1500")], "1.5"),
        *(([("Retry-After", value)], None) for value in ("nan", "inf", "-inf", "-5", "0", "soon", "")),
    ],
)
async def test_how_long_it_wants_to_be_left_alone(
    server: Server, headers: list[tuple[str, str]], seconds: str | None
) -> None:
    server.answer = lambda _: Answer({}, 503, tuple(headers))
    error = await fails(provider(server).start(RemoteItem("i1"), "k"))
    assert error.headers.get("Retry-After") == seconds


async def test_long_answers_and_redirects_are_refused(server: Server) -> None:
    server.always({"x": "y" * 5000})
    error = await fails(provider(server, max_answer_bytes=2000).start(RemoteItem("i1"), "k"))
    assert "more than 2,000 bytes" in str(error)
    server.always({}, 302, Location="http://elsewhere.example/")
    assert "redirects are not followed" in str(await fails(provider(server).start(RemoteItem("i1"), "k")))


async def test_a_job_is_cancelled_if_the_provider_can(server: Server) -> None:
    video = provider(server, cancel={"url": "/jobs/{id}", "method": "DELETE"})
    assert video.can_cancel
    await video.cancel("a b")
    assert (server.asked[0].method, server.asked[0].path) == ("DELETE", "/v1/jobs/a%20b")
    server.always({}, 404)
    await video.cancel("gone")
    server.always({}, 409)
    assert (await fails(video.cancel("a"))).status_code == 409
    assert not provider(server).can_cancel


async def test_a_missing_secret_is_said_before_anything_is_sent(server: Server) -> None:
    with pytest.raises(ConfigError, match="the environment has no VIDEO_KEY"):
        provider(server, auth_env="VIDEO_KEY")
