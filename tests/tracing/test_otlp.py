"""Spans of real processes on their way to a collector: an HTTP server that reads the protocol."""

from __future__ import annotations

import gzip
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Serves OTLP over HTTP; the list fills with the spans that arrive."""
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            request = ExportTraceServiceRequest()
            request.ParseFromString(body)
            assert self.path == "/v1/traces"
            spans.extend(span for part in request.resource_spans for scope in part.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", spans
    finally:
        server.shutdown()
        server.server_close()


def test_one_trace_from_a_checkout_to_what_a_process_of_its_own_does(tmp_path: Path) -> None:
    """Takes seconds: three processes start, as they do for people."""
    with collector() as (endpoint, spans):
        given = {name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE_", "OTEL_"))}
        given |= {"REDRIVE_URL": f"sqlite:///{tmp_path}/tasks.db", "REDRIVE_TRACING": "on", "COLLECTOR": endpoint}
        given |= {"REDRIVE_LOG": "json"}
        run = [sys.executable, "-m"]
        subprocess.run([*run, "tests.tracing.otlp_app"], env=given, check=True, timeout=60)
        work = [
            *run,
            "redrive.cli",
            "work",
            "--app",
            "tests.tracing.otlp_app:app",
            "--stop-when-empty",
            "--concurrency",
            "2",
        ]
        done = subprocess.run(work, env=given, check=True, timeout=90, capture_output=True, text=True)
    names = {span.name: span for span in spans}
    way = ["checkout", "enqueue ORDER", "process ORDER", "enqueue RENDER", "process RENDER", "draw"]
    assert sorted(names) == sorted(way) and len(spans) == len(way)
    for parent, child in itertools.pairwise(way):
        assert names[child].parent_span_id == names[parent].span_id, (parent, child)
    assert len({span.trace_id for span in spans}) == 1
    assert [link.span_id for link in names["process RENDER"].links] == [names["enqueue RENDER"].span_id]
    assert f'"trace_id":"{names["checkout"].trace_id.hex()}"' in done.stderr, "and in the log lines of its tasks"
