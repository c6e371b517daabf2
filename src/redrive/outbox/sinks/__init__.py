"""Makes sinks from URLs. The file of each is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import urlsplit

from redrive.errors import ConfigError, WrongSetting
from redrive.outbox.sink import Sink


class SinkType(NamedTuple):
    """A sort of sinks. ``place``: the "module:function" that gets the URL and returns one; ``extra``: what brings its
    client, where it needs one; ``words``: what people call it; ``packages``: what has to be installed for it."""

    place: str
    extra: str | None
    words: str
    packages: tuple[str, ...] = ()


_OF_SCHEMES: Mapping[tuple[str, ...], SinkType] = {
    ("fts5",): SinkType("redrive.outbox.sinks.fts5:from_url", None, "SQLite full text"),
    ("elasticsearch+http", "elasticsearch+https"): SinkType(
        "redrive.outbox.sinks.elasticsearch:from_url", "elasticsearch", "Elasticsearch", ("elasticsearch", "aiohttp")
    ),
    ("opensearch+http", "opensearch+https"): SinkType(
        "redrive.outbox.sinks.opensearch:from_url", "opensearch", "OpenSearch", ("opensearchpy", "aiohttp")
    ),
    ("http", "https"): SinkType("redrive.outbox.sinks.http:from_url", "http", "HTTP", ("httpx",)),
    ("postgresql",): SinkType(
        "redrive.outbox.sinks.postgres_text:from_url", "postgres", "PostgreSQL full text", ("asyncpg",)
    ),
    ("redis", "rediss"): SinkType("redrive.outbox.sinks.redis_stream:from_url", "redis", "Redis stream", ("redis",)),
}
SINKS = {scheme: one for schemes, one in _OF_SCHEMES.items() for scheme in schemes}


def scheme_of(url: str) -> str:
    """Returns the scheme of a sink's URL; refused where no sink has it. Nothing of the rest is quoted: it may hold a
    password."""
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme not in SINKS:
        raise ConfigError(
            f"there is no sink {scheme + '://' if scheme else 'without a scheme'}",
            hint=f"a sink's URL begins with one of: {', '.join(f'{one}://' for one in SINKS)}",
        )
    return scheme


def modules_of(url: str) -> list[str]:
    """Returns what a sink's URL needs imported, which may be a large client: a worker does that before it claims.
    Nothing for a URL of no sink, which is refused by whoever makes one."""
    found = SINKS.get(url.partition("://")[0])
    return [] if found is None else [found.place.partition(":")[0]]


def check_installed(url: str) -> None:
    """Refuses the URL of a sink whose client is not installed, and says what to install. Nothing is imported."""
    found = SINKS[scheme_of(url)]
    missing = next((name for name in found.packages if find_spec(name) is None), None)
    if missing is not None:
        raise WrongSetting(
            f"a sink {found.words} needs {missing}, which is not installed",
            hint=f"pip install 'redrive[{found.extra}]'",
        )


def sink_words(shown: str) -> str:
    """Returns what people call the sink of a URL; what is no URL, as it is."""
    found = SINKS.get(shown.partition("://")[0])
    return shown if found is None else found.words


def sink_from_url(url: str) -> Sink:
    """Returns the sink of a URL: ``fts5:///search.db``, ``elasticsearch+http://host:9200/index``, …"""
    scheme = scheme_of(url)
    place, extra, *_ = SINKS[scheme]
    module, _, name = place.partition(":")
    try:
        make = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").startswith("redrive"):
            raise
        raise ConfigError(
            f"a sink {scheme}:// needs {error.name}, which is not installed", hint=f"pip install 'redrive[{extra}]'"
        ) from error
    made: Sink = make(url)
    return made
