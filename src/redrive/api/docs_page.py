"""Serves ``/openapi.json``, and ``/docs``: the routes as one page, made here from that document. Both are made once,
beside the loop: it takes a second or two, and everybody may ask for them.

No script runs on it, neither ours nor anybody's: the page has the origin of an API that can retry and erase, and an
operator's machine may reach no other network. What wants to call routes interactively reads ``/openapi.json``.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response

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
    by_tag = _by_tag(document)
    listed = "".join(
        f"<h2>{escape(tag)}</h2><ul>{''.join(_link(*r[:3]) for r in routes)}</ul>" for tag, routes in by_tag.items()
    )
    told = "".join(
        f'<section><h2 id="{escape(tag)}">{escape(tag)}</h2>{"".join(_route(document, *r) for r in routes)}</section>'
        for tag, routes in by_tag.items()
    )
    info = document["info"]
    about = "".join(f"<p>{_text(part)}</p>" for part in info["description"].split("\n\n"))
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>redrive API</title>'
        '<link rel="stylesheet" href="docs/style.css"></head><body>'
        f'<nav aria-label="Routes"><h1>redrive <small>{escape(info["version"])}</small></h1>'
        f'<p><a href="openapi.json">openapi.json</a></p>{listed}</nav><main>{about}{told}</main></body></html>'
    )


Route = tuple[str, str, str, Document]


def _by_tag(document: Document) -> dict[str, list[Route]]:
    by_tag: dict[str, list[Route]] = {}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                told = item[method]
                tag = (told.get("tags") or ["other"])[0]
                by_tag.setdefault(tag, []).append((told["operationId"], method, path, told))
    return by_tag


def _link(name: str, method: str, path: str) -> str:
    return f'<li><a href="#{escape(name)}"><b class="{method}">{method.upper()}</b> {escape(path)}</a></li>'


def _route(document: Document, name: str, method: str, path: str, told: Document) -> str:
    body = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    parts = [
        f'<article id="{escape(name)}"><h3><b class="{method}">{method.upper()}</b> <code>{escape(path)}</code></h3>',
        f"<p>{_text(told.get('description') or told.get('summary', ''))}</p>",
        _parameters(told.get("parameters", [])),
        "" if body is None else f"<h4>Body</h4>{_example(document, body)}",
    ]
    for status, answer in told.get("responses", {}).items():
        schema = answer.get("content", {}).get("application/json", {}).get("schema")
        if schema is not None and status.startswith("2"):
            parts.append(f"<h4>{escape(status)} {escape(answer['description'])}</h4>{_example(document, schema)}")
    others = [f"{s} {a['description']}" for s, a in told.get("responses", {}).items() if not s.startswith("2")]
    if others:
        parts.append(f"<p class='others'>Also: {escape('; '.join(others))}.</p>")
    return "".join([*parts, "</article>"])


def _parameters(given: list[Document]) -> str:
    if not given:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code></td><td>{escape(p['in'])}</td><td>{escape(_type(p['schema']))}</td>"
        f"<td>{'required' if p.get('required') else ''} {_text(p.get('description', ''))}</td></tr>"
        for p in given
    )
    return f"<div class='wide'><table><tr><th>parameter</th><th>in</th><th>type</th><th></th></tr>{rows}</table></div>"


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


def _example(document: Document, schema: Document) -> str:
    shape = json.dumps(_shape(document, schema, 0), indent=2, ensure_ascii=False)
    return f"<pre>{escape(shape)}</pre>"


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


def _text(words: str) -> str:
    """Returns prose with `code` in it as HTML."""
    return "".join(_pieces(words))


def _pieces(words: str) -> Iterator[str]:
    for index, part in enumerate(words.replace("``", "`").split("`")):
        yield f"<code>{escape(part)}</code>" if index % 2 else escape(part)
