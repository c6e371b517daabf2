"""``/docs``: Swagger UI as published, served from here. An operator's machine may reach no other network, and no other
network should have a say in what runs on this origin."""

from __future__ import annotations

import gzip
from importlib import resources

from fastapi import FastAPI, Request, Response

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>redrive API</title><link rel="stylesheet" href="docs/swagger-ui.css"></head>
<body><div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script><script src="docs/start.js"></script></body></html>
"""
# No validatorUrl: where this instance is, is nobody else's business.
START = """SwaggerUIBundle({
  url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true, filter: true, validatorUrl: null,
});
"""
_TYPES = {"swagger-ui-bundle.js": "text/javascript; charset=utf-8", "swagger-ui.css": "text/css; charset=utf-8"}


def add_docs(api: FastAPI) -> None:
    @api.get("/docs", include_in_schema=False)
    async def page() -> Response:
        return Response(PAGE, media_type="text/html")

    @api.get("/docs/start.js", include_in_schema=False)
    async def start() -> Response:
        return Response(START, media_type="text/javascript")

    @api.get("/docs/swagger-ui-bundle.js", include_in_schema=False)
    async def script(request: Request) -> Response:
        return _asset("swagger-ui-bundle.js", request)

    @api.get("/docs/swagger-ui.css", include_in_schema=False)
    async def style(request: Request) -> Response:
        return _asset("swagger-ui.css", request)


def compressed(name: str) -> bytes:
    return (resources.files("redrive.api") / "swagger_ui" / f"{name}.gz").read_bytes()


def _asset(name: str, request: Request) -> Response:
    """Compressed, as every browser takes it."""
    headers = {"Cache-Control": "max-age=86400", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(compressed(name), media_type=_TYPES[name], headers=headers | {"Content-Encoding": "gzip"})
    return Response(gzip.decompress(compressed(name)), media_type=_TYPES[name], headers=headers)
