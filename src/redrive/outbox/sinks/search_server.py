"""What the sinks of Elasticsearch and OpenSearch need of a client, and how a server is reached.

Both servers speak the same HTTP for everything that a sink does. Their clients differ, so each has a file with a
``SearchServer`` over it; what is written and how answers are read is in ``search_index.py``."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from redrive.errors import ConfigError, RedriveError
from redrive.kernel.classify import by_status

OPTIONS = ("api_key", "ca", "verify", "timeout")
TIMEOUT_S = 30.0


class SearchServer(Protocol):
    """A server that answers requests. Tries nothing again: the relay does that."""

    async def ask(
        self, method: str, path: str, body: Any = None, params: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        """Returns the answer to a request. ``body``: a document, or bytes with one on each line. Raises Refused for an
        answer of 300 or more, ConnectionError and TimeoutError where there was none."""
        ...

    async def close(self) -> None:
        """Closes its connections."""
        ...


class Refused(RedriveError):
    """A server did not do what it was asked for."""

    code = "OUTBOX_SINK_REFUSED"

    def __init__(self, status: int, kind: str, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"HTTP {status}: {': '.join(filter(None, (kind, reason)))}")
        self.status_code = status
        self.classification = by_status(status)  # the server's own: what we raise is not classified by its status
        self.kind = kind  # what the server calls it: index_not_found_exception
        self.reason = reason
        self.headers = {} if headers is None else {name.title(): value for name, value in headers.items()}


def refused(status: int, answer: Any, headers: Mapping[str, str] | None = None) -> Refused:
    """Returns what the answer of a server means. Proxies in between answer with pages of their own."""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if isinstance(error, Mapping):
        return Refused(status, str(error.get("type") or ""), str(error.get("reason") or ""), headers)
    return Refused(status, "", str(error or answer or "")[:200], headers)


def content_type(body: Any) -> str:
    """Returns how a body is announced: one document, or one on each line."""
    return "application/x-ndjson" if isinstance(body, bytes) else "application/json"


def json_of(text: str) -> Any:
    """Returns the document of an answer, or the text where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(slots=True, frozen=True)
class Access:
    """Where a server is, and what it is told and asked for before anything is sent."""

    url: str  # scheme, host, port, and what a proxy wants in front
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    ca: str | None = None  # a file with certificates of authorities to trust instead of the system's
    verify: bool = True
    timeout: float = TIMEOUT_S

    @property
    def shown(self) -> str:
        return urlsplit(self.url).netloc


def not_trusted(access: Access, problem: object) -> ssl.SSLError:
    """Returns the error of a server with which no trusted connection could be made."""
    trust = "name the file of its authority with ?ca=/path/ca.pem in the sink's URL"
    return ssl.SSLError(1, f"{access.shown}: {problem}; {trust}")


def access_of(url: str) -> tuple[Access, str]:
    """Returns where a server is and the name of the index, of ``opensearch+https://user:password@host:9200/notes``.

    Options: ``api_key``, ``ca`` (a file), ``verify=false``, ``timeout`` (seconds). Nothing of a URL is quoted in
    errors: it may hold a password."""
    scheme, where = url.partition("+")[2].partition("://")[0], urlsplit(url)
    prefix, _, index = unquote(where.path).strip("/").rpartition("/")
    example = f"{url.partition('://')[0]}://host:9200/notes"
    if not where.hostname or not index:
        raise ConfigError("the URL of a search sink has a host and the name of an index", hint=f"for example {example}")
    asked = _options(where.query, example)
    host = f"[{where.hostname}]" if ":" in where.hostname else where.hostname
    return (
        Access(
            url=f"{scheme}://{host}:{_port(url) or (443 if scheme == 'https' else 9200)}"
            + (f"/{prefix}" if prefix else ""),
            username=None if where.username is None else unquote(where.username),
            password=None if where.password is None else unquote(where.password),
            api_key=asked.get("api_key"),
            ca=asked.get("ca"),
            verify=asked.get("verify", "true").lower() not in ("false", "no", "0"),
            timeout=_seconds(asked.get("timeout")),
        ),
        index,
    )


def _options(query: str, example: str) -> dict[str, str]:
    asked = {name: values[-1] for name, values in parse_qs(query, strict_parsing=False).items()}
    if unknown := sorted(set(asked) - set(OPTIONS)):
        raise ConfigError(
            f"a search sink has no option {unknown[0]!r}", hint=f"there are {', '.join(OPTIONS)}: {example}?timeout=10"
        )
    return asked


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        raise ConfigError("the port in the URL of a search sink is no number from 1 to 65535") from None


def _seconds(given: str | None) -> float:
    try:
        found = TIMEOUT_S if given is None else float(given)
    except ValueError:
        found = 0.0
    if not 0 < found <= 3600:
        raise ConfigError("timeout of a search sink is a number of seconds, at most 3600", hint="timeout=10")
    return found
