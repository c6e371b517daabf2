"""Pages of lists that are ordered by name: what a call may ask for, and where the next page is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query, Request, Response

PAGE_SIZE = 500
After = Annotated[str, Query(max_length=120, description="The name after which the page begins.")]
Limit = Annotated[int, Query(ge=1, le=1000)]


def link_next(request: Request, response: Response, names: Sequence[str], limit: int) -> None:
    """Says where the page after this one is, if there are more names than it has."""
    if len(names) > limit:
        address = request.url.include_query_params(after=names[limit - 1], limit=limit)
        response.headers["Link"] = f'<{address.path}?{address.query}>; rel="next"'
