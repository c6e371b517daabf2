"""The providers of an application, those that it brings and those that are configured: calls them, and sees to it that
what comes back is what was agreed upon."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from redrive.errors import ConfigError, InvalidInput
from redrive.ids import new_id
from redrive.kernel.classify import CODE_TYPES, NO_RULES, UNKNOWN, FailureRules, FailureType, by_words, classify
from redrive.kernel.retry_after import retry_after
from redrive.kernel.wording import clean
from redrive.remote.provider import (
    NONSENSE,
    JobFailure,
    JobState,
    Polled,
    Provider,
    ProviderError,
    ProviderUnknown,
    RemoteItem,
    Status,
)
from redrive.settings.providers import HttpProviderSettings

NOT_SAID = "the provider does not say why"
MAX_CODE = 100
CALL_SECONDS = 60.0  # one call of a provider; a job itself may take as long as it likes
MAX_ID = 500
MAX_KEY = 200
MAX_MESSAGE = 2_000
SHOWN = 200  # characters of what came that a message quotes
UNSAID = JobFailure("")
BETWEEN_SECONDS = 1.0
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


def plain_code(given: Any) -> str | None:
    """Returns a provider's own code as text; numbers are codes, too."""
    known = isinstance(given, str | int) and not isinstance(given, bool)
    return as_text(given)[:MAX_CODE] if known else None


def as_text(given: Any, how: Callable[[Any], str] = str) -> str:
    """Returns anything as text: whose own code for it raises is named by its type."""
    try:
        return how(given)
    except Exception:
        return f"<{type(given).__name__}>"


def _failure_type(given: Any) -> FailureType | None:
    try:
        return None if given is None else FailureType(given)
    except ValueError:
        return None


class RemoteProvider:
    """A provider of an application, by its name. Whatever it raises comes as ``ProviderError``, and of its answers only
    what makes sense is returned."""

    def __init__(
        self, name: str, provider: Provider, rules: FailureRules = NO_RULES, seconds: float = CALL_SECONDS
    ) -> None:
        self.name = name
        self.provider = provider
        self.max_poll = _max_poll(name, provider)
        self.max_seconds = _max_seconds(name, provider, seconds)
        self._rules = rules

    @property
    def can_cancel(self) -> bool:
        return callable(getattr(self.provider, "cancel", None)) and getattr(self.provider, "can_cancel", True)

    @property
    def can_find(self) -> bool:
        return callable(getattr(self.provider, "find", None)) and getattr(self.provider, "can_find", True)

    async def start(self, item: RemoteItem, idempotency_key: str, *, within: float | None = None) -> str:
        """Starts a job and returns its id; the same key always names the same job. ``within``: seconds, where that is
        less than a call may take."""
        if not 1 <= len(idempotency_key) <= MAX_KEY or not idempotency_key.isascii():
            raise InvalidInput(f"an idempotency key has 1 to {MAX_KEY} ASCII characters")
        return self._id("start", await self._ask(self.provider.start, item, idempotency_key, within=within))

    async def poll(self, ids: Sequence[str]) -> Polled:
        """Returns what became of these jobs, by id, in as few calls as the provider allows; those that it does not know
        are left out. If a call fails, its jobs have the error in place of a status; if all fail, the first is
        raised."""
        answers: dict[str, Status | ProviderError] = {}
        errors: list[ProviderError] = []
        wanted = list(dict.fromkeys(ids))
        parts = [wanted[at : at + self.max_poll] for at in range(0, len(wanted), self.max_poll)]
        for part in parts:
            try:
                answers |= await self._poll_once(part)
            except ProviderError as error:
                errors.append(error)
                answers |= dict.fromkeys(part, error)
        if errors and len(errors) == len(parts):
            raise errors[0]
        return answers

    async def cancel(self, job_id: str) -> None:
        """Asks for the end of a job; its status says whether that helped."""
        cancel = getattr(self.provider, "cancel", None)
        if not self.can_cancel or cancel is None:
            raise InvalidInput(f"the provider {self.name} cannot cancel", hint="its jobs end by themselves")
        await self._ask(cancel, job_id)

    async def find(self, idempotency_key: str) -> str | None:
        """Returns the id of the job that was started with a key; None where there is none. It starts nothing."""
        find = getattr(self.provider, "find", None)
        if not self.can_find or find is None:
            raise InvalidInput(f"the provider {self.name} cannot be asked by key", hint="only by the id of a job")
        found = await self._ask(find, idempotency_key)
        return None if found is None else self._id("find", found)

    async def close(self) -> None:
        """Lets go of what the provider has open."""
        close = getattr(self.provider, "close", None)
        if close is not None:
            await close()

    def _id(self, call: str, found: object) -> str:
        if isinstance(found, str) and 1 <= len(found) <= MAX_ID and found.isprintable():
            return found
        raise self._nonsense(call, f"an id of 1 to {MAX_ID} characters", found)

    async def _poll_once(self, part: Sequence[str]) -> dict[str, Status | ProviderError]:
        found: object = await self._ask(self.provider.poll, part)
        if not isinstance(found, Mapping):
            raise self._nonsense("poll", "a status by id", found)
        try:
            return {job: self._checked(job, found[job]) for job in part if job in found}
        except Exception as error:  # of a mapping of the application's own
            raise self._made(error) from error

    def _checked(self, job: str, found: object) -> Status | ProviderError:
        if isinstance(found, ProviderError):
            return self._named(found)
        if not isinstance(found, Status) or not isinstance(found.state, JobState):
            return self._nonsense(f"poll: {job}", "a Status", found)
        known = replace(found, progress=_progress(found.progress))
        if known.state is not JobState.FAILED:
            return known
        failure: object = UNSAID if known.failure is None else known.failure
        if not isinstance(failure, JobFailure):
            return self._nonsense(f"poll: {job}", "a Status whose failure is a JobFailure", found)
        return replace(known, failure=self._failure(failure))

    def _failure(self, given: JobFailure) -> JobFailure:
        """Returns why a job failed with what can be used of it, and what that counts as: by rules and status, else by
        its words. That it failed is said clearly: the rest is not worth asking again."""
        text = "" if given.message is None else as_text(given.message).strip()
        message = clean(text[:MAX_MESSAGE])[:MAX_MESSAGE] or NOT_SAID
        status, code = given.status_code if type(given.status_code) is int else None, plain_code(given.code)
        told = ProviderError(message, provider=self.name, status_code=status, code=code)
        found = classify(told, (), self._rules)
        words = found == UNKNOWN or code in CODE_TYPES
        kind = by_words(message, self._rules.table, code) if words else found.type
        reason = given.reason if isinstance(given.reason, str) else None
        return JobFailure(
            message,
            status,
            code,
            _failure_type(given.failure_type) or kind,
            reason or ("provider_failed" if found == UNKNOWN else found.reason),
            given.retryable if isinstance(given.retryable, bool) else bool(found.retryable),
        )

    async def _ask(self, call: Callable[..., Awaitable[Any]], *arguments: Any, within: float | None = None) -> Any:
        seconds = self.max_seconds if within is None else min(within, self.max_seconds)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await call(*arguments)
        except ProviderError as error:
            raise self._named(error) from error.__cause__
        except TimeoutError as error:
            if not limit.expired():
                raise self._made(error) from error
            late = TimeoutError(f"{call.__name__} had not returned after {seconds:g} seconds")
            raise self._made(late) from error
        except Exception as error:
            raise self._made(error) from error

    def _made(self, error: Exception) -> ProviderError:
        wait = retry_after(error, datetime.now(UTC))
        text = clean(as_text(error)[:MAX_MESSAGE]) or type(error).__name__
        return ProviderError(
            f"{self.name}: {text}",
            provider=self.name,
            retry_after=None if wait is None else f"{wait:g}",
            classification=classify(error, (), self._rules),
        )

    def _named(self, error: ProviderError) -> ProviderError:
        """Returns a provider's own error with its name, what it counts as here, and its wish in seconds."""
        error.code = plain_code(error.code)
        if error.provider is None:
            error.provider = self.name
            error.message = f"{self.name}: {as_text(error.message)}"
            error.args = (error.message,)
        wait = retry_after(error, datetime.now(UTC))
        error.headers = {} if wait is None else {"Retry-After": f"{wait:g}"}
        error.classification = classify(error, (), self._rules)
        return error

    def _nonsense(self, call: str, wanted: str, found: object) -> ProviderError:
        told = f"{self.name}: {call} returned {clean(as_text(found, repr)[:SHOWN])} where {wanted} was expected"
        return ProviderError(told, provider=self.name, classification=NONSENSE)


def _progress(given: object) -> float | None:
    """Returns how much is done. What is no such number is unknown: an item is not held up for it."""
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        return None
    return float(min(max(given, 0), 100))


def _max_poll(name: str, provider: object) -> int:
    found = getattr(provider, "max_poll", 1)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ConfigError(f"max_poll of the provider {name} is {found!r}, and has to be a number of jobs, at least 1")
    return found


def _max_seconds(name: str, provider: object, otherwise: float) -> float:
    found = getattr(provider, "max_seconds", otherwise)
    if not isinstance(found, int | float) or isinstance(found, bool) or not 0 < found <= 3600:
        raise ConfigError(f"max_seconds of the provider {name} is {found!r}, and has to be above 0, and 3600 at most")
    return float(found)


class ProviderRegistry:
    """Providers by name. Configured ones are made when they are first asked for."""

    def __init__(
        self, configured: Mapping[str, HttpProviderSettings], rules: FailureRules, seconds: float = CALL_SECONDS
    ) -> None:
        self._configured = configured
        self._seconds = seconds
        self._rules = rules
        self._known: dict[str, RemoteProvider] = {}

    def __iter__(self) -> Iterator[str]:
        return iter({**self._configured, **self._known})

    def add(self, name: str, provider: Any) -> None:
        """Takes up a provider that the application brings. In its place a configured one of that name is refused: two
        sources would say different things."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"a provider is named in small letters, digits, - and _, not {name!r}")
        if name in self._known or name in self._configured:
            where = "in the settings (providers)" if name in self._configured else "already"
            raise ConfigError(f"there is a provider {name!r} {where}", hint="give one of them another name")
        if isinstance(provider, type) or not isinstance(provider, Provider):
            what = f"the class {provider.__name__}" if isinstance(provider, type) else type(provider).__name__
            raise ConfigError(
                f"the provider {name!r} is {what}, without start and poll that can be called",
                hint="give an object with async start(item, idempotency_key) and async poll(ids)",
            )
        self._known[name] = RemoteProvider(name, provider, self._rules, self._seconds)

    def of(self, name: str) -> RemoteProvider:
        """Returns a provider by its name; one that there is not is refused."""
        if name in self._known:
            return self._known[name]
        if name in self._configured:
            made = RemoteProvider(name, _http(name, self._configured[name]), self._rules)
            return self._known.setdefault(name, made)
        raise unknown_provider(name, [*self])

    def check(self) -> None:
        """Makes all configured providers: a secret that is missing is found when a worker starts, not with its first
        task."""
        for name in self._configured:
            self.of(name)

    async def close(self) -> None:
        """Closes what providers have open in this event loop."""
        for one in self._known.values():
            await one.close()


def _http(name: str, settings: HttpProviderSettings) -> Provider:
    try:
        from redrive.remote.http_provider import HttpProvider
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the provider {name!r} needs httpx, which is not installed ({error.name} is missing)",
            hint="pip install '/path/to/checkout[http]'",
        ) from error
    try:
        return HttpProvider(settings)
    except ConfigError as error:
        raise ConfigError(f"providers.{name}: {error.message}", hint=error.hint) from None


def unknown_provider(name: str, known: list[str]) -> ProviderUnknown:
    """Returns what somebody is told who names a provider that there is not."""
    close = difflib.get_close_matches(name, known, 1)
    there = f"there are: {', '.join(known)}" if known else "say it in redrive.toml as [providers.NAME]"
    return ProviderUnknown(f"there is no provider {name!r}", hint=f"did you mean {close[0]}?" if close else there)


async def try_job(
    provider: RemoteProvider, payload: Any, key: str, between: float = BETWEEN_SECONDS
) -> AsyncIterator[tuple[str, Status | None]]:
    """Starts a job and yields its id, with nothing at first, then with each status that differs from the last one. What
    goes wrong on the way is raised, as it came."""
    job = await provider.start(RemoteItem(str(new_id()), payload), key)
    yield job, None
    last: Status | None = None
    while last is None or not last.state.ended:
        found = (await provider.poll([job])).get(job)
        if found is None:
            told = f"{provider.name}: poll knows nothing of {job}, which start has named"
            raise ProviderError(told, provider=provider.name, classification=NONSENSE)
        if isinstance(found, ProviderError):
            raise found
        if found != last:
            yield job, found
        last = found
        if not found.state.ended:
            await asyncio.sleep(between)
