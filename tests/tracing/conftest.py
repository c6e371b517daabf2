"""Applications that trace, and what their spans say: the real SDK, with an exporter that keeps what it gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.worker.conftest import app, make_app, url  # noqa: F401 (fixtures)


class Spans:
    """What was exported."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [found] = self.named(name)
        return found


@pytest.fixture(scope="session")
def exporter() -> InMemorySpanExporter:
    """The provider is one for a process, and set once."""
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[Spans]:
    exporter.clear()
    yield Spans(exporter)
    exporter.clear()


def context(span: Any) -> tuple[int, int]:
    """Returns by what others know a span."""
    found = span.get_span_context()
    return found.trace_id, found.span_id


def hexed(span: Any) -> str:
    """Returns the id of a span's trace, as tools show it."""
    return f"{span.get_span_context().trace_id:032x}"
