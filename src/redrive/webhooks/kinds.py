"""The kinds of webhooks, which have a queue of their own: a receiver that is slow holds up nothing else."""

from __future__ import annotations

from redrive.handlers.kinds import Kinds

QUEUE = "webhooks"
kinds = Kinds()
