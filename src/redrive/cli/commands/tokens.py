"""``redrive tokens``: who may call the HTTP API."""

from __future__ import annotations

from redrive.cli.declared import group_of
from redrive.ops.operator.tokens import TokenService

tokens_cli = group_of(TokenService)
