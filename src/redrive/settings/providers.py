"""Reads the tables ``[providers.NAME]``: remote providers that need no code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from redrive.kernel.placeholders import names_in, problem_of
from redrive.settings.declare import Values, option
from redrive.settings.values import Problem, Problems, Unfit, from_json, read, url_parts

PROVIDERS_EXAMPLE = (
    '{"video": {"type": "http", "base_url": "https://api.example.com", "start": {"url": "/jobs"}, '
    '"poll": {"url": "/jobs/{id}"}}}'
)
IN_START = ("payload", "item_id", "key", "callback_url")
IN_POLL = ("id", "ids")
STATES = ("pending", "running", "succeeded", "failed", "cancelled")
# What most providers call them; ``statuses`` adds words, or gives them another meaning.
WORDS: Mapping[str, str] = {
    word: state
    for state, words in {
        "pending": "pending queued created submitted waiting scheduled accepted",
        "running": "running processing in_progress started working",
        "succeeded": "succeeded success successful completed complete done finished",
        "failed": "failed failure error errored rejected expired timeout timed_out",
        "cancelled": "cancelled canceled aborted",
    }.items()
    for word in words.split()
}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"(?:[\w-]+(?:\.[\w-]+)*)?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET = re.compile(r"auth|cookie|token|secret|password|api-?key", re.I)


def _base(url: str) -> str:
    """Nothing of it is quoted: it may hold a login."""
    where = url_parts(url)
    if where is None or where.scheme not in ("http", "https"):
        raise ValueError("it is no address that begins with http:// or https://")
    if where.username is not None or where.query or where.fragment:
        raise ValueError("a login, a query or a fragment does not belong there; a secret is said with auth_env")
    return url.rstrip("/")


def _below_base(url: str) -> str:
    if not url.startswith("/") or url.startswith("//") or re.search(r"\s", url):
        raise ValueError("it begins with one / and is added to base_url")
    return url


def _path(path: str) -> str:
    if not _PATH.fullmatch(path):
        raise ValueError("it is a path of names with points between, such as job.id or jobs.0.id")
    return path


def _variable(name: str | None) -> str | None:
    if name is not None and not _VARIABLE.fullmatch(name):
        # Not quoted: perhaps it is the secret itself.
        raise ValueError("that is no name of an environment variable; the secret itself belongs into the environment")
    return name


def _header(name: str) -> str:
    if name and not _HEADER.fullmatch(name):
        raise ValueError("it is no name of a header")
    return name


def _headers(given: dict[str, str]) -> dict[str, str]:
    for name, value in given.items():
        _header(name)
        if _SECRET.search(name):
            raise ValueError(f"{name} looks like a secret, which a file is no place for; say it with auth_env")
        if not value.isprintable() or not value.isascii():
            raise ValueError(f"the value of {name} cannot be sent as a header")
    return given


def _statuses(given: dict[str, str]) -> dict[str, str]:
    if unfit := [
        Problem((word,), f"it has to be one of {', '.join(STATES)}", state)
        for word, state in given.items()
        if state not in STATES
    ]:
        raise Unfit(*unfit)
    return {word.lower(): state for word, state in given.items()}


class StartCall(Values):
    """How a job is started, and where the answer has its id."""

    url: str = option(..., help="Where, below base_url.", check=_below_base)
    method: Literal["POST", "PUT", "PATCH"] = option("POST", help="How.")
    body: Any = option("{payload}", help="What is sent, as JSON.")
    id: str = option("id", help="Where the answer has the job's id.", check=_path)


class PollCall(Values):
    """How jobs are looked at, one by one or many at once, and where the answer says what."""

    url: str = option(..., help="Where, with {id} or {ids}.", check=_below_base)
    method: Literal["GET", "POST"] = option("GET", help="How.")
    body: Any = option(None, help="What is sent with POST, with {ids}.")
    max: int = option(100, ge=1, le=10_000, help="Jobs of one request, where it takes many.")
    concurrency: int = option(4, ge=1, le=100, help="Requests at once, where each is of one job.")
    list: str = option("", help="Where the answer has the list of jobs.", check=_path)
    id: str = option("id", help="Where each of them has its id.", check=_path)
    status: str = option("status", help="Where the status word is.", check=_path)
    statuses: dict[str, str] = option({}, help="What other words mean.", check=_statuses)
    progress: str = option("progress", help="Where the progress is.", check=_path)
    progress_of: float = option(100.0, gt=0, help="What all of it is: 100, or 1.")
    result: str = option("result", help="Where the result is.", check=_path)
    error: str = option("error", help="Where the error's text is.", check=_path)
    error_code: str = option("error_code", help="Where the provider's own code of it is.", check=_path)
    error_status: str = option("error_status", help="Where an HTTP status of it is.", check=_path)
    next: str = option("", help="Where the answer has the next page: a cursor, or an address.", check=_path)
    cursor: str = option("cursor", help="The query parameter, or field of the body, that takes the cursor.")
    max_pages: int = option(100, ge=1, le=10_000, help="Pages that are read at most.")

    @property
    def many(self) -> bool:
        """Whether one request asks for many jobs."""
        return "ids" in names_in([self.url, self.body])

    def word(self, text: str) -> str | None:
        """Returns the state that a provider's word means; None where nobody said."""
        known = text.strip().lower()
        return self.statuses.get(known) or WORDS.get(re.sub(r"[\s-]", "_", known))


class CancelCall(Values):
    """How a job is cancelled."""

    url: str = option(..., help="Where, with {id}.", check=_below_base)
    method: Literal["POST", "DELETE", "PUT", "PATCH"] = option("POST", help="How.")
    body: Any = option(None, help="What is sent, as JSON.")


class FindCall(Values):
    """How the job of a key is found, where its id never came back."""

    url: str = option(..., help="Where, with {key}.", check=_below_base)
    method: Literal["GET", "POST"] = option("GET", help="How.")
    body: Any = option(None, help="What is sent with POST, with {key}.")
    list: str = option("", help="Where the answer has the list of jobs, or the job.", check=_path)
    id: str = option("id", help="Where a job has its id.", check=_path)


class HttpProviderSettings(Values):
    """A provider that is spoken to over HTTP, as JSON."""

    type: Literal["http"] = option("http", help="What it is.")
    base_url: str = option(..., help="The address that others are added to.", check=_base)
    auth_env: str | None = option(None, help="The environment variable that has the secret.", check=_variable)
    auth_header: str = option("Authorization", help="The header that carries it.", check=_header)
    auth_scheme: str = option("Bearer", help="What stands before it; nothing if empty.")
    headers: dict[str, str] = option({}, help="Further headers.", check=_headers)
    idempotency_header: str = option("Idempotency-Key", help="The header of the key; none if empty.", check=_header)
    timeout: float = option(30.0, gt=0, le=3_600, help="Seconds for a whole request.")
    connect_timeout: float = option(5.0, gt=0, le=3_600, help="Seconds to connect.")
    connections: int = option(20, ge=1, le=1_000, help="Connections at once, in each process.")
    max_answer_bytes: int = option(16_777_216, ge=1_024, help="Longer answers are refused.")
    start: StartCall = option(..., help="How a job is started.")
    poll: PollCall = option(..., help="How jobs are looked at.")
    cancel: CancelCall | None = option(None, help="How a job is cancelled.")
    find: FindCall | None = option(None, help="How the job of a key is found.")

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).netloc

    def problems(self) -> list[Problem]:
        """Returns what does not fit together."""
        templates = [
            (("start", "url"), self.start.url, IN_START),
            (("start", "body"), self.start.body, IN_START),
            (("poll", "url"), self.poll.url, IN_POLL),
            (("poll", "body"), self.poll.body, IN_POLL),
        ]
        if self.cancel is not None:
            templates += [
                (("cancel", "url"), self.cancel.url, ("id",)),
                (("cancel", "body"), self.cancel.body, ("id",)),
            ]
        if self.find is not None:
            templates += [(("find", "url"), self.find.url, ("key",)), (("find", "body"), self.find.body, ("key",))]
        found = [Problem(place, message) for place, one, known in templates if (message := problem_of(one, known))]
        return found or [*self._of_poll(), *self._of_cancel(), *self._of_find(), *self._of_key()]

    def _of_poll(self) -> list[Problem]:
        names = names_in([self.poll.url, self.poll.body])
        if len(names) != 1:
            return [Problem(("poll", "url"), "it, or the body, needs either {id} (one job a request) or {ids} (many)")]
        if self.poll.body is not None and self.poll.method == "GET":
            return [Problem(("poll", "body"), 'a body is sent with method = "POST"')]
        if self.poll.next and not self.poll.many:
            return [Problem(("poll", "next"), "pages are read of a list: ask for {ids}")]
        return []

    def _of_cancel(self) -> list[Problem]:
        if self.cancel is None or "id" in names_in([self.cancel.url, self.cancel.body]):
            return []
        return [Problem(("cancel", "url"), "it, or the body, needs {id}")]

    def _of_find(self) -> list[Problem]:
        if self.find is None or "key" in names_in([self.find.url, self.find.body]):
            return []
        return [Problem(("find", "url"), "it, or the body, needs {key}")]

    def _of_key(self) -> list[Problem]:
        if self.idempotency_header or "key" in names_in([self.start.url, self.start.body]):
            return []
        message = (
            "without it a start repeated after a crash starts a second job: name a header, or put {key} into the body"
        )
        return [Problem(("idempotency_header",), message)]


class Providers(dict[str, HttpProviderSettings]):
    """Configured providers by name. As text it has names and hosts only: everybody may read it."""

    def __str__(self) -> str:
        return ", ".join(f"{name} ({one.type}, {one.host})" for name, one in self.items())


def parse_providers(given: Any) -> Providers:
    """Returns what such tables say. Raises Unfit with all that is wrong."""
    tables: dict[str, Any] = read(dict[str, Any], from_json(given, PROVIDERS_EXAMPLE))
    found = Providers()
    with Problems() as problems:
        for name, table in tables.items():
            with problems.below(name):
                if not _NAME.fullmatch(name):
                    raise Unfit(Problem((), "a provider is named in small letters, digits, - and _", name))
                found[name] = HttpProviderSettings.from_map(table)
                problems += [one.below(name) for one in found[name].problems()]
    return found
