"""Values of items and ids of jobs stay within their step of an address."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.kernel.placeholders import StraysFromPath, filled_url
from redrive.remote import ProviderError, RemoteItem
from tests.remote.conftest import Server
from tests.remote.test_http import fails, provider


@pytest.mark.parametrize("model", ["..", ".", "", None])
async def test_an_item_that_would_lead_elsewhere_fails_before_anything_is_sent(server: Server, model: Any) -> None:
    video = provider(server, start={"url": "/models/{payload.model}/jobs"})
    error = await fails(video.start(RemoteItem("i1", {"model": model}), "k"))
    assert error.reason == "provider_item" and "{payload.model}" in str(error) and not server.asked
    await video.close()


async def test_a_job_that_is_named_by_dots_is_nonsense_and_nothing_is_deleted(server: Server) -> None:
    server.always({"id": "fine", "status": "running"})
    video = provider(server, cancel={"url": "/jobs/{id}", "method": "DELETE"})
    assert (await fails(video.cancel(".."))).reason == "provider_answer"
    told = (await video.poll(["..", "fine"]))[".."]
    assert isinstance(told, ProviderError) and told.reason == "provider_answer"
    assert [one.path for one in server.asked] == ["/v1/jobs/fine"]
    await video.close()


async def test_many_jobs_in_a_path(server: Server) -> None:
    server.always({"jobs": [{"id": "a", "status": "running"}]})
    video = provider(server, poll={"url": "/jobs/{ids}", "list": "jobs"})
    assert (await fails(video.poll([".."]))).reason == "provider_answer"
    await video.poll(["a", ".."])
    assert [one.path for one in server.asked] == ["/v1/jobs/a,.."]
    await video.close()


@pytest.mark.parametrize(
    ("template", "value", "url"),
    [
        ("/a/{x}/b", "../../c", "/a/..%2F..%2Fc/b"),
        ("/a/v{x}/b", "", "/a/v/b"),
        ("/a/{x?}/b", "", "/a//b"),
        ("/a/{x}.json", ".", "/a/..json"),
        ("/a?x={x}", "..", "/a?x=.."),
        ("/a?x={x}", "", "/a?x="),
        ("/a?x={x?}&y=/../", "", "/a?x=&y=/../"),
        ("https://host/../{x}", "ok", "https://host/../ok"),
    ],
)
def test_what_is_no_whole_step_is_taken(template: str, value: str, url: str) -> None:
    assert filled_url(template, {"x": value}) == url


@pytest.mark.parametrize("template", ["/a/{x}", "/a/{x}{x}", "{x}/a", "/a/{x?}", "/a/{x}?q=1", "/a/{x?}?q={x}"])
def test_dots_that_are_a_whole_step_are_refused(template: str) -> None:
    with pytest.raises(StraysFromPath):
        filled_url(template, {"x": "."})
