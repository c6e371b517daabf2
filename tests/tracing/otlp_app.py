"""An application as people write it: the SDK, an exporter, and handlers on the loop and in a process."""

from __future__ import annotations

import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from redrive import App, Context

provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=os.environ["COLLECTOR"])))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop")
app = App()


@app.task("ORDER")
async def order(ctx: Context) -> None:
    await app.enqueue("RENDER")


@app.task("RENDER", isolation="process")
def render(ctx: Context) -> None:
    with tracer.start_as_current_span("draw"):
        pass


if __name__ == "__main__":
    with tracer.start_as_current_span("checkout"):
        app.sync.enqueue("ORDER")
    app.sync.close()
