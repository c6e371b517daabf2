"""Starts, looks at and cancels jobs over HTTP, as ``[providers.NAME]`` says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from redrive.kernel.classify import classify
from redrive.kernel.placeholders import Missing, StraysFromPath, filled, filled_url
from redrive.remote.http_client import Client, excerpt, job_id, needed, nonsense, optional, status_of
from redrive.remote.provider import UNFIT_ITEM, Polled, ProviderError, RemoteItem, Status
from redrive.settings.providers import HttpProviderSettings

GONE = (404, 410)  # a provider that does not know a job


class HttpProvider:
    """A provider that speaks JSON over HTTP. Many jobs are looked at in one request where it has an address for
    that."""

    def __init__(self, settings: HttpProviderSettings) -> None:
        self.settings = settings
        self.can_cancel = settings.cancel is not None
        self.can_find = settings.find is not None
        # One by one they are asked several at once: as many as fill that for a while.
        self.max_poll = settings.poll.max
        self._client = Client(settings)

    max_seconds = 3600.0  # each request has a limit of its own, and one poll may be many of them

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        """Sends the start request, with the key in its header, and returns the id that the answer has."""
        call, header = self.settings.start, self.settings.idempotency_header
        values = {
            "payload": item.payload,
            "item_id": item.id,
            "key": idempotency_key,
            "callback_url": item.callback_url,
        }
        try:
            url, body = filled_url(call.url, values), filled(call.body, values)
        except Missing as error:
            told = f"the item has no {error.path!r}, which the template of start asks for"
            raise ProviderError(told, classification=UNFIT_ITEM) from None
        except StraysFromPath as error:
            raise ProviderError(f"the item does not fit the url of start: {error}", classification=UNFIT_ITEM) from None
        try:
            answer = await self._client.send(call.method, url, body, {header: idempotency_key} if header else None)
        except ValueError as error:  # NaN, or what is no JSON at all
            raise ProviderError(f"the item cannot be sent as JSON: {error}", classification=UNFIT_ITEM) from None
        return job_id(answer, call.id, "the answer to start")

    async def poll(self, ids: Sequence[str]) -> Polled:
        """Looks at these jobs, in one request or, where the provider can only do that, one by one."""
        return await self._poll_many(ids) if self.settings.poll.many else await self._poll_each(ids)

    async def cancel(self, job: str) -> None:
        """Asks for the end of a job. One that is gone needs none."""
        call = self.settings.cancel
        if call is None:
            raise NotImplementedError("this provider has no address for cancelling")
        try:
            await self._client.send(call.method, _address(call.url, id=job), filled(call.body, {"id": job}))
        except ProviderError as error:
            if error.status_code not in GONE:
                raise

    async def find(self, idempotency_key: str) -> str | None:
        """Returns the id of the job that was started with a key; None where the provider has none."""
        call = self.settings.find
        if call is None:
            raise NotImplementedError("this provider has no address for finding a job by its key")
        url, body = _address(call.url, key=idempotency_key), filled(call.body, {"key": idempotency_key})
        try:
            answer = await self._client.send(call.method, url, body)
        except ProviderError as error:
            if error.status_code in GONE:
                return None
            raise
        found = needed(answer, call.list, "the answer to find")
        if isinstance(found, list):
            if not found:
                return None
            found = found[0]
        return job_id(found, call.id, "the answer to find")

    async def close(self) -> None:
        """Closes the connections of the running event loop."""
        await self._client.close()

    async def _poll_each(self, ids: Sequence[str]) -> Polled:
        room = asyncio.Semaphore(self.settings.poll.concurrency)

        async def one(job: str) -> Status | ProviderError | None:
            async with room:
                return await self._poll_one(job)

        found = await asyncio.gather(*(one(job) for job in ids))
        answers = {job: status for job, status in zip(ids, found, strict=True) if status is not None}
        errors = [status for status in answers.values() if isinstance(status, ProviderError)]
        if errors and len(errors) == len(ids):
            raise errors[0]  # the provider is in trouble, not a job
        return answers

    async def _poll_one(self, job: str) -> Status | ProviderError | None:
        call = self.settings.poll
        try:
            answer = await self._client.send(call.method, _address(call.url, id=job), filled(call.body, {"id": job}))
            where = f"the answer to poll of {job}"
            return status_of(needed(answer, call.list, where), call, where)
        except ProviderError as error:
            return None if error.status_code in GONE else error
        except Exception as error:
            return _of_one(job, error)

    async def _poll_many(self, ids: Sequence[str]) -> Polled:
        wanted, found = set(ids), dict[str, Status | ProviderError]()
        nameless: ProviderError | None = None
        cursor: str | None = None
        for _ in range(self.settings.poll.max_pages):
            answer = await self._page(ids, cursor)
            read, odd = self._read(answer, wanted)
            found |= read
            nameless = nameless or odd
            following = optional(answer, self.settings.poll.next)
            if following in (None, "", False) or len(found) == len(wanted):
                return found if nameless is None else _with_missing(found, ids, nameless)
            if not isinstance(following, str | int) or str(following) == cursor:
                raise nonsense(
                    f"the answer to poll has {excerpt(following)} at {self.settings.poll.next!r}: no next page"
                )
            cursor = str(following)
        raise nonsense(f"the answer to poll has more than {self.settings.poll.max_pages} pages (max_pages)")

    async def _page(self, ids: Sequence[str], cursor: str | None) -> Any:
        call = self.settings.poll
        if cursor is not None and "/" in cursor and (url := self._same_host(cursor)) is not None:
            return await self._client.send(call.method, url, filled(call.body, {"ids": list(ids)}))
        joined = ",".join(quote(one, safe="") for one in ids)
        url = _address(call.url, encode=str, ids=joined)
        body = filled(call.body, {"ids": list(ids)})
        if cursor is not None and isinstance(body, dict):
            body = {**body, call.cursor: cursor}
        elif cursor is not None:
            url += ("&" if "?" in url else "?") + urlencode({call.cursor: cursor})
        return await self._client.send(call.method, url, body)

    def _same_host(self, address: str) -> str | None:
        """Returns the address of a next page. Requests carry a secret: they go to no other host."""
        if not address.startswith(("http://", "https://", "/")):
            return None  # a cursor that happens to have a slash
        base, where = urlsplit(self.settings.base_url), urlsplit(address)
        if where.netloc and (where.scheme, where.netloc) != (base.scheme, base.netloc):
            raise nonsense(f"the next page is at {excerpt(address)}, which is another host than that of base_url")
        return address if where.netloc else f"{base.scheme}://{base.netloc}/{address.lstrip('/')}"

    def _read(self, answer: Any, wanted: set[str]) -> tuple[dict[str, Status | ProviderError], ProviderError | None]:
        """Returns what a page says about the jobs that were asked for, and what is wrong with one that has no id. One
        that makes no sense spoils no other."""
        listed = needed(answer, self.settings.poll.list, "the answer to poll")
        jobs, nameless = _jobs(listed, self.settings.poll.id)
        return {job: self._status(job, one) for job, one in jobs if job in wanted}, nameless

    def _status(self, job: str, found: Any) -> Status | ProviderError:
        try:
            return status_of(found, self.settings.poll, f"the answer to poll of {job}")
        except ProviderError as error:
            return error
        except Exception as error:  # a number or a text of a size that nobody thought of
            return nonsense(f"the answer to poll of {job} cannot be read: {type(error).__name__}")


def _address(template: str, *, encode: Callable[[str], str] | None = None, **values: str) -> str:
    """Returns the address for a job. Its id came from the provider: one that leads elsewhere is nonsense."""
    try:
        return filled_url(template, values, encode)
    except StraysFromPath as error:
        raise nonsense(f"the provider's id of a job cannot be part of an address: {error}") from None


def _jobs(listed: Any, path: str) -> tuple[list[tuple[str, Any]], ProviderError | None]:
    """Returns jobs with their ids: of a list, or of a table that has them by id; and the error of the first that has
    none."""
    if isinstance(listed, Mapping):
        return [(str(job), one) for job, one in listed.items()], None
    if not isinstance(listed, list):
        raise nonsense(f"the answer to poll has no list of jobs, but {excerpt(listed)}")
    found: list[tuple[str, Any]] = []
    nameless: ProviderError | None = None
    for one in listed:
        try:
            found.append((job_id(one, path, "a job in the answer to poll"), one))
        except ProviderError as error:
            nameless = nameless or error
    return found, nameless


def _with_missing(found: Polled, ids: Sequence[str], nameless: ProviderError) -> Polled:
    """Returns what was found. A job that is missing may be the one without an id: nobody can say that the provider does
    not know it."""
    if not found:
        raise nameless
    return {**dict.fromkeys(ids, nameless), **found}


def _of_one(job: str, error: Exception) -> ProviderError:
    """Returns the error of one request among several; its cause says what it counts as."""
    made = ProviderError(f"poll of {job}: {error or type(error).__name__}", classification=classify(error))
    made.__cause__ = error
    return made
