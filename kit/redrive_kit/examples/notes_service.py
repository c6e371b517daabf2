"""The HTTP service of the example of notes: an ordinary one, which happens to publish what it changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from redrive.outbox.projection import Projection
from redrive.outbox.sink import Searchable
from redrive_kit.examples.notes_table import Notes

MOST_BYTES = 1_000_000
MOST_LISTED = 100
INDEX = """Notes. What is written here can be found a moment later.

  curl {url}/notes -d '{{"title": "Milk", "text": "Two bottles, and bread"}}'    write one
  curl {url}/notes                                       all of them, by pages: ?after=ID&limit=20
  curl {url}/notes/ID                                    read one
  curl -X PUT {url}/notes/ID -d '{{"text": "Three bottles"}}'    change it
  curl -X DELETE {url}/notes/ID                          delete it
  curl '{url}/search?q=bottles'                          find them
"""


class Json(JSONResponse):
    """An answer that ends its line: it is read in a terminal."""

    def render(self, content: Any) -> bytes:
        return super().render(content) + b"\n"


def make_service(projection: Projection, opened: Callable[[Any], AbstractAsyncContextManager[Any]]) -> Starlette:
    """Returns the application that a server serves. ``opened``: has notes in its state while it is served."""
    routes = [
        Route("/", index),
        Route("/healthz", healthz),
        Route("/notes", create, methods=["POST"]),
        Route("/notes", list_notes),
        Route("/notes/{note_id}", read),
        Route("/notes/{note_id}", update, methods=["PUT", "PATCH"]),
        Route("/notes/{note_id}", delete, methods=["DELETE"]),
        Route("/search", search),
    ]
    made = Starlette(routes=routes, lifespan=opened, exception_handlers={HTTPException: _refused})
    made.state.projection = projection
    return made


async def index(request: Request) -> Response:
    return PlainTextResponse(INDEX.format(url=str(request.base_url).rstrip("/")))


async def healthz(request: Request) -> Response:
    return Json({"status": "ok", "service": "notes", "projection": request.app.state.projection.name})


async def create(request: Request) -> Response:
    given = await _fields(request)
    if not given.get("title"):
        raise HTTPException(422, "a note has a title")
    note = await _notes(request).create(given["title"], given.get("text", ""))
    return Json(note.shown(), 201, headers={"Location": f"/notes/{note.id}"})


async def list_notes(request: Request) -> Response:
    limit = _number(request, "limit", 20, MOST_LISTED)
    found = await _notes(request).page(request.query_params.get("after", ""), limit)
    return Json({"items": [note.shown() for note in found]})


async def read(request: Request) -> Response:
    return _shown(await _notes(request).get(request.path_params["note_id"]))


async def update(request: Request) -> Response:
    given = await _fields(request)
    if not given:
        raise HTTPException(422, "nothing to change: give a title, a text, or both")
    note_id = request.path_params["note_id"]
    return _shown(await _notes(request).update(note_id, given.get("title"), given.get("text")))


async def delete(request: Request) -> Response:
    if await _notes(request).delete(request.path_params["note_id"]) is None:
        raise HTTPException(404, "there is no such note")
    return Response(status_code=204)


async def search(request: Request) -> Response:
    sink = request.app.state.projection.sink()
    if not isinstance(sink, Searchable):
        raise HTTPException(501, "this sink is searched by its own means: ask the search server of ELASTIC_URL")
    hits = await sink.search(request.query_params.get("q", ""), _number(request, "limit", 10, MOST_LISTED))
    return Json({"items": [{"key": hit.key, **hit.document} for hit in hits]})


def _notes(request: Request) -> Notes:
    notes: Notes = request.app.state.notes
    return notes


def _shown(note: Any) -> Response:
    if note is None:
        raise HTTPException(404, "there is no such note")
    return Json(note.shown())


def _number(request: Request, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise HTTPException(422, f"{name} is a number from 1 to {most}")
    return int(text)


async def _fields(request: Request) -> dict[str, str]:
    """Returns what a request says of a note: texts, and nothing else."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"a note has at most {MOST_BYTES} bytes")
    try:
        given = json.loads(body)
    except ValueError:
        raise HTTPException(400, 'this is no JSON; for example {"title": "Milk", "text": "Two bottles"}') from None
    if not isinstance(given, dict) or not set(given) <= {"title", "text"}:
        raise HTTPException(422, "a note is a JSON object with title and text")
    if not all(isinstance(value, str) and _storable(value) for value in given.values()):
        raise HTTPException(422, "title and text are texts")
    return given


def _storable(text: str) -> bool:
    """Returns whether both databases can keep a text: no NUL, no half of a surrogate pair."""
    return "\0" not in text and text.encode("utf-8", "ignore").decode() == text


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Json({"error": error.detail}, error.status_code, headers=error.headers)
