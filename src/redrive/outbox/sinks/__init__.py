"""Makes sinks from URLs. The file of each is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from urllib.parse import urlsplit

from redrive.errors import ConfigError
from redrive.outbox.sink import Sink

# Scheme → "module:function" that gets the URL and returns a sink; the extra that brings its client, where it needs one.
SINKS: Mapping[str, tuple[str, str | None]] = {
    "fts5": ("redrive.outbox.sinks.fts5:from_url", None),
    "elasticsearch+http": ("redrive.outbox.sinks.elasticsearch:from_url", "elasticsearch"),
    "elasticsearch+https": ("redrive.outbox.sinks.elasticsearch:from_url", "elasticsearch"),
    "opensearch+http": ("redrive.outbox.sinks.opensearch:from_url", "opensearch"),
    "opensearch+https": ("redrive.outbox.sinks.opensearch:from_url", "opensearch"),
    "http": ("redrive.outbox.sinks.http:from_url", "http"),
    "https": ("redrive.outbox.sinks.http:from_url", "http"),
    "postgresql": ("redrive.outbox.sinks.postgres_text:from_url", "postgres"),
    "redis": ("redrive.outbox.sinks.redis_stream:from_url", "redis"),
    "rediss": ("redrive.outbox.sinks.redis_stream:from_url", "redis"),
}


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
    place, _ = SINKS.get(url.partition("://")[0], ("", None))
    return [place.partition(":")[0]] if place else []


def sink_from_url(url: str) -> Sink:
    """Returns the sink of a URL: ``fts5:///search.db``, ``elasticsearch+http://host:9200/index``, …"""
    scheme = scheme_of(url)
    place, extra = SINKS[scheme]
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
