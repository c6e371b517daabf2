"""Serves ``/openapi.json``, and ``/docs``: the routes as one page, made here from that document. Both are made once,
beside the loop: it takes a second or two, and everybody may ask for them.

Not FastAPI's own page, which is a script from somebody else's host: no script runs on this one, neither ours nor
anybody's, since it has the origin of an API that can retry and erase, and an operator's machine may reach no other
network. What wants to call routes interactively reads ``/openapi.json``.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup

router = APIRouter()
Document = dict[str, Any]
_METHODS = ("get", "post", "put", "patch", "delete")
_DEEPEST = 6


@dataclass(slots=True, frozen=True)
class Documents:
    """The OpenAPI document as text, the page of it, and both compressed."""

    plain: dict[str, bytes]
    compressed: dict[str, bytes]


class DocumentMaker:
    """Makes the documents of one API when they are first asked for; whoever asks meanwhile waits for the same ones."""

    def __init__(self) -> None:
        self._made: dict[str, Documents] = {}
        self._turn = asyncio.Lock()

    async def documents(self, request: Request) -> Documents:
        where = request.scope.get("root_path", "").rstrip("/")  # where it is mounted in another application
        async with self._turn:
            if where not in self._made:
                self._made[where] = await asyncio.to_thread(_make, request.app, where)
            return self._made[where]


def _make(api: FastAPI, where: str) -> Documents:
    document = api.openapi()
    if where:
        document = {**document, "servers": [{"url": where}]}
    plain = {
        "application/json": json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(),
        "text/html": render(document).encode(),
    }
    return Documents(plain, {kind: gzip.compress(text, 6, mtime=0) for kind, text in plain.items()})


async def _answer(request: Request, kind: str) -> Response:
    made = await request.app.state.documents.documents(request)
    headers = {"Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return Response(made.compressed[kind], media_type=kind, headers={**headers, "Content-Encoding": "gzip"})
    return Response(made.plain[kind], media_type=kind, headers=headers)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    return await _answer(request, "application/json")


@router.get("/docs", include_in_schema=False)
async def page(request: Request) -> Response:
    return await _answer(request, "text/html")


@router.get("/docs/style.css", include_in_schema=False)
async def style() -> Response:
    text = (resources.files("redrive.api") / "docs_page.css").read_text("utf-8")
    return Response(text, media_type="text/css", headers={"Cache-Control": "max-age=3600"})


def render(document: Document) -> str:
    """Returns the whole page."""
    env = Environment(loader=PackageLoader("redrive.api", "."), autoescape=True, undefined=ChainableUndefined)
    env.filters |= {
        "prose": _prose,
        "type": _type,
        "shape": lambda schema: json.dumps(_shape(document, schema, 0), indent=2, ensure_ascii=False),
    }
    by_tag: dict[str, list[tuple[str, str, Document]]] = {}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                tag, *_ = item[method].get("tags") or ["other"]
                by_tag.setdefault(tag, []).append((method, path, item[method]))
    return env.get_template("docs_page.html").render(info=document["info"], by_tag=by_tag)


def _type(schema: Document) -> str:
    choices = schema.get("anyOf")
    if choices:
        return " or ".join(dict.fromkeys(_type(choice) for choice in choices if choice.get("type") != "null"))
    named = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
    if named:
        return " | ".join(map(str, named))
    kind = str(schema.get("format") or schema.get("type") or schema.get("$ref", "any").rsplit("/", 1)[-1])
    bounds = [f"{sign} {schema[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return " ".join([kind, *bounds])


def _shape(document: Document, schema: Document, depth: int) -> Any:
    """Returns the schema as a document of its form: names, and types where values would be."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    for choice in schema.get("anyOf", ()):
        if choice.get("type") != "null":
            return _shape(document, choice, depth)
    if "properties" in schema and depth < _DEEPEST:
        needed = schema.get("required", ())
        return {
            name if name in needed else f"{name}?": _shape(document, inner, depth + 1)
            for name, inner in schema["properties"].items()
        }
    if schema.get("type") == "array":
        return [_shape(document, schema.get("items", {}), depth + 1)]
    return _type(schema)


def _prose(words: str) -> Markup:
    """Returns prose with `code` in it as HTML."""
    parts = words.replace("``", "`").split("`")
    return Markup().join(Markup("<code>{}</code>").format(one) if nth % 2 else one for nth, one in enumerate(parts))
