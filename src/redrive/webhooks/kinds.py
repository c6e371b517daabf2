"""The kinds of webhooks, which have a queue of their own: a receiver that is slow holds up nothing else."""

from __future__ import annotations

from redrive.handlers.kinds import Kinds

QUEUE = "webhooks"
# The client loads its parts one by one, as they are first used.
CLIENT = ("httpx", "httpcore", "h11", "anyio", "anyio._backends._asyncio", "encodings.idna")
kinds = Kinds()
