"""``redrive outbox search``: documents of a projection, as its sink finds them."""

from __future__ import annotations

import json as json_format
from typing import Annotated, Any

import typer

from redrive.feature.cli import AppName, Json, Url, operate, output
from redrive.outbox.service import OutboxService

LONGEST_SHOWN = 120


def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Words that the documents have.")],
    projection: Annotated[
        str | None, typer.Option("--projection", "-p", metavar="NAME", help="Where there are several.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many at most.")] = 10,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Search the documents of a projection, where its sink can: full text and search servers."""

    async def look(service: OutboxService) -> tuple[list[dict[str, Any]], str | None]:
        return await service.search(projection, text, limit), await service.search_gap(projection, text)

    hits, gap = operate(url, app, lambda own: look(own.of(OutboxService)))
    if json:
        output.emit_list(hits, warnings=[] if gap is None else [gap])
        return
    if gap is not None:
        output.warn(gap)
    if not hits:
        output.say("nothing found")
        return
    shown = [(hit["key"], f"{hit['score']:.3f}", _short(hit["document"])) for hit in hits]
    output.table(["document", "score", "text"], shown)
    if len(hits) == limit:
        output.say(f"the first {limit}; --limit N shows more")


def _short(document: Any) -> str:
    text = json_format.dumps(document, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
