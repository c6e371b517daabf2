"""What load is put on: an application's HTTP API, or the database behind it."""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from redrive.app import App
from redrive.errors import StoreUnavailable
from redrive.kernel.classify import classify
from redrive_kit.examples.notes_table import notes_of

TIMEOUT_S = 10.0


class Refused(Exception):
    """An operation that was answered, but not done. ``kind`` is what it is counted as."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Target(Protocol):
    """What load needs. All of it raises where an operation failed."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def create(self, title: str, text: str) -> str:
        """Returns the id of a new note."""
        ...

    async def update(self, note_id: str, text: str) -> None: ...
    async def delete(self, note_id: str) -> None: ...


def error_kind(error: Exception) -> str:
    """Returns what an error is counted as: its status, or why there was none."""
    return error.kind if isinstance(error, Refused) else f"{classify(error).reason} ({type(error).__name__})"


class HttpTarget:
    """An application with the routes of ``redrive_kit.examples.notes``."""

    def __init__(self, base: str, connections: int) -> None:
        import httpx

        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client: Any = httpx.AsyncClient(base_url=base, timeout=TIMEOUT_S, limits=limits)
        parts = urlsplit(base)
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    async def open(self) -> None:
        """Asks for a page of notes: an application that is not there, or another one, is not driven."""
        hint = "./dev up --example notes starts one; its address is --api-base, or API_BASE"
        try:
            answer = await self._client.get("/notes", params={"limit": 1})
        except Exception as error:
            await self._client.aclose()
            raise StoreUnavailable(f"{self._shown} does not answer ({classify(error).reason})", hint=hint) from error
        if answer.status_code != 200:
            await self._client.aclose()
            raise StoreUnavailable(f"{self._shown}/notes answers {answer.status_code}: no notes are there", hint=hint)

    async def close(self) -> None:
        await self._client.aclose()

    async def create(self, title: str, text: str) -> str:
        answer = await self._send("POST", "/notes", {"title": title, "text": text})
        try:
            return str(answer.json()["id"])
        except (ValueError, KeyError, TypeError):
            raise Refused("an answer without an id") from None

    async def update(self, note_id: str, text: str) -> None:
        await self._send("PUT", f"/notes/{quote(note_id, safe='')}", {"text": text})

    async def delete(self, note_id: str) -> None:
        await self._send("DELETE", f"/notes/{quote(note_id, safe='')}")

    async def _send(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self._client.request(method, path, json=body)
        if not answer.is_success:
            raise Refused(f"HTTP {answer.status_code}")
        return answer


class TableTarget:
    """The table of the example, in the database of a store: row and event in one transaction."""

    def __init__(self, app: App, connection: str | None, projection: str) -> None:
        self._app, self._served = app, app.at(connection)
        self._notes = notes_of(self._served.url, projection)

    async def open(self) -> None:
        """Opens the store first: it says in clear words what is wrong with it."""
        try:
            await self._served.store()
            await self._notes.open()
        except BaseException:
            await self._app.close()
            raise

    async def close(self) -> None:
        await self._notes.close()
        await self._app.close()

    async def create(self, title: str, text: str) -> str:
        return str((await self._notes.create(title, text)).id)

    async def update(self, note_id: str, text: str) -> None:
        if await self._notes.update(note_id, None, text) is None:
            raise Refused("the note is gone")

    async def delete(self, note_id: str) -> None:
        if await self._notes.delete(note_id) is None:
            raise Refused("the note is gone")
