"""The HTTP server of a simulated Elasticsearch or OpenSearch."""

from __future__ import annotations

import hmac
import json
from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from redrive.errors import InvalidInput
from redrive.settings.declare import option
from redrive_kit.simulators.faults import Trouble, Troublesome, body_of
from redrive_kit.simulators.search.bulk import parsed, written
from redrive_kit.simulators.search.documents import Documents, searched
from redrive_kit.simulators.search.refusal import Refusal

OWN = "/_simulator"
Answer = Callable[[Request], Awaitable[Any]]


class SearchBehaviour(Troublesome):
    """What can be chosen besides its trouble."""

    product: Literal["elasticsearch", "opensearch"] = option("opensearch", help="Which one it says it is.")
    busy_share: float = option(0.0, ge=0, le=1, help="Share of documents that get a 429 inside a bulk answer.")
    broken_share: float = option(0.0, ge=0, le=1, help="Share of documents that get a 503 inside a bulk answer.")
    max_bytes: int = option(100_000_000, ge=1, help="Largest request; beyond that 413.")
    refresh_interval: float = option(1.0, ge=0, le=86_400, help="When what was written is found by itself.")


class SearchSimulator:
    """A search server that is told how to behave, at ``/_simulator/control``, and says what was asked of it, at
    ``/_simulator/seen``."""

    def __init__(
        self,
        behaviour: SearchBehaviour,
        *,
        keep: Path | None = None,
        basic: tuple[str, str] | None = None,
        api_key: str | None = None,
        seed: int = 0,
    ) -> None:
        """``keep``: the file that its documents are in after a restart. ``basic``, ``api_key``: who is let in."""
        self.trouble = Trouble(behaviour, seed)
        self.change = self.trouble.change
        self.documents = Documents(":memory:" if keep is None else str(keep))
        self.seen: Counter[str] = Counter()
        self._known = _allowed(basic, api_key)

    def app(self) -> ASGIApp:
        """Returns what a server serves."""
        routes = [
            Route(f"{OWN}/control", self.trouble.control, methods=["GET", "POST"]),
            Route(f"{OWN}/seen", self.told, methods=["GET", "DELETE"]),
            self._route("/", self.info, "GET"),
            self._route("/_aliases", self.aliases, "POST"),
            self._route("/_alias/{name}", self.alias, "GET"),
            self._route("/{name}/_bulk", self.bulk, "POST"),
            self._route("/{name}/_refresh", self.refresh, "POST"),
            self._route("/{name}/_search", self.search, "POST"),
            self._route("/{name}/_count", self.count, "GET", "POST"),
            self._route("/{name}/_doc/{id:path}", self.document, "GET"),
            self._route("/{name}", self.exists, "HEAD"),
            self._route("/{name}", self.described, "GET"),
            self._route("/{name}", self.create, "PUT"),
            self._route("/{name}", self.remove, "DELETE"),
        ]
        return self.trouble.around(Starlette(routes=routes, exception_handlers={InvalidInput: _not_so}), OWN)

    def _route(self, path: str, answer: Answer, *methods: str) -> Route:
        async def endpoint(request: Request) -> Response:
            self.seen[answer.__name__] += 1
            try:
                self._admit(request)
                said = filtered(await answer(request), request.query_params.get("filter_path", ""))
            except Refusal as error:
                return JSONResponse(error.answer(), error.status, self._headers())
            return JSONResponse(said, 200, self._headers())

        return Route(path, endpoint, methods=list(methods), name=answer.__name__)

    def _headers(self) -> dict[str, str]:
        return {"X-Elastic-Product": "Elasticsearch"} if self.trouble.behaviour.product == "elasticsearch" else {}

    def _admit(self, request: Request) -> None:
        said = request.headers.get("Authorization", "")
        if self._known and not any(hmac.compare_digest(said.encode(), one.encode()) for one in self._known):
            raise Refusal(401, "security_exception", "missing or wrong authentication credentials")
        kind = request.headers.get("content-type", "")
        if "vnd.elasticsearch" in kind and self.trouble.behaviour.product == "opensearch":
            raise Refusal(406, "", f"Content-Type header [{kind}] is not supported")

    # -- what sinks ask for ----------------------------------------------------------------------------------------

    async def info(self, _: Request) -> Any:
        product = self.trouble.behaviour.product
        version = {"distribution": product, "number": "2.19.1"} if product == "opensearch" else {"number": "8.19.0"}
        return {"name": "simulator", "cluster_name": "redrive", "version": version}

    async def bulk(self, request: Request) -> Any:
        body = await self._body(request)
        actions = parsed(body)
        self.seen["documents"] += len(actions)
        alias = request.query_params.get("require_alias") == "true"
        with self.documents.transaction():
            return written(self.documents, request.path_params["name"], actions, alias, self._by_chance)

    def _by_chance(self) -> Refusal | None:
        behaviour, chance = self.trouble.behaviour, self.trouble.chance.random()
        if chance < behaviour.busy_share:
            return Refusal(429, "es_rejected_execution_exception", "rejected execution: the queue is full")
        if chance < behaviour.busy_share + behaviour.broken_share:
            return Refusal(503, "unavailable_shards_exception", "primary shard is not active")
        return None

    async def exists(self, request: Request) -> Any:
        self.documents.named(request.path_params["name"])
        return {}

    async def described(self, request: Request) -> Any:
        [name] = self.documents.named(request.path_params["name"])
        return {name: {"settings": {"index": {"uuid": self.documents.identity(name)}}}}

    async def create(self, request: Request) -> Any:
        name, body = request.path_params["name"], await self._json(request)
        with self.documents.transaction():
            self.documents.create(name, body)
        return {"acknowledged": True, "shards_acknowledged": True, "index": name}

    async def remove(self, request: Request) -> Any:
        with self.documents.transaction():
            self.documents.remove_index(request.path_params["name"])
        return {"acknowledged": True}

    async def alias(self, request: Request) -> Any:
        name = request.path_params["name"]
        behind = self.documents.behind(name)
        if not behind:
            raise Refusal(404, "", f"alias [{name}] missing")
        return {one: {"aliases": {name: {}}} for one in behind}

    async def aliases(self, request: Request) -> Any:
        """Removes indexes first, so that an alias can take the name of one: all in one step."""
        given = (await self._json(request)).get("actions", [])
        with self.documents.transaction():
            for action in sorted(given, key=lambda one: "remove_index" not in one):
                match action:
                    case {"add": {"index": name, "alias": alias}}:
                        self.documents.add_alias(name, alias)
                    case {"remove": {"index": name, "alias": alias}}:
                        self.documents.remove_alias(name, alias)
                    case {"remove_index": {"index": name}}:
                        self.documents.remove_index(name)
        return {"acknowledged": True}

    async def refresh(self, request: Request) -> Any:
        with self.documents.transaction():
            for name in self.documents.named(request.path_params["name"]):
                self.documents.refresh(name)
        return {"_shards": {"total": 1, "successful": 1, "failed": 0}}

    async def search(self, request: Request) -> Any:
        body, name = await self._json(request), request.path_params["name"]
        self._refresh_if_due(name)
        return searched(self.documents, name, body)

    async def count(self, request: Request) -> Any:
        name = request.path_params["name"]
        self._refresh_if_due(name)
        return {"count": self.documents.count(self.documents.named(name))}

    async def document(self, request: Request) -> Any:
        name, key = request.path_params["name"], request.path_params["id"]
        found = self.documents.get(name, key)
        if found is None:
            raise Refusal(404, "", f"there is no document [{key}]")
        return {"_index": name, "_id": key, "_version": found.version, "found": True, "_source": found.source}

    def _refresh_if_due(self, target: str) -> None:
        with self.documents.transaction():
            for name in self.documents.named(target):
                self.documents.refresh_if_due(name, self.trouble.behaviour.refresh_interval)

    async def _body(self, request: Request) -> bytes:
        found = await body_of(request, self.trouble.behaviour.max_bytes)
        if found is None:
            raise Refusal(413, "", "")
        return found

    async def _json(self, request: Request) -> Any:
        try:
            return json.loads(await self._body(request) or b"{}")
        except ValueError:
            raise Refusal(400, "parse_exception", "Failed to parse content to map") from None

    # -- what whoever runs it asks for -----------------------------------------------------------------------------

    async def told(self, request: Request) -> Response:
        """Returns how often everything was asked for; DELETE begins anew."""
        said = {**self.seen, "refused": self.trouble.refused}
        if request.method == "DELETE":
            self.seen.clear()
            self.trouble.refused = 0
        return JSONResponse(said)


def _allowed(basic: tuple[str, str] | None, api_key: str | None) -> list[str]:
    known = [] if basic is None else [f"Basic {b64encode(':'.join(basic).encode()).decode()}"]
    return known if api_key is None else [*known, f"ApiKey {api_key}"]


async def _not_so(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)


def filtered(answer: Any, wanted: str) -> Any:
    """Returns the parts of an answer that ``a.*.b,c`` names; lists are gone through."""
    return _kept(answer, [path.split(".") for path in wanted.split(",")]) if wanted else answer


def _kept(value: Any, paths: Sequence[Sequence[str]]) -> Any:
    if any(not path for path in paths):
        return value
    if isinstance(value, list):
        return [found for one in value if (found := _kept(one, paths))]
    if not isinstance(value, dict):
        return {}
    kept = {}
    for name, inner in value.items():
        fitting = [path[1:] for path in paths if path[0] in (name, "*")]
        if fitting and (found := _kept(inner, fitting)) not in ({}, []):
            kept[name] = found
    return kept
