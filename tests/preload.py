"""Imported once by the process that others are forked from: a fresh interpreter would spend a second on it."""

import httpx
import pydantic.main
import pydantic.type_adapter

import redrive
import redrive.app.application
import redrive.app.workers
import redrive.cli.commands.work
import redrive.cli.main
import redrive.cli.root
import redrive.observe.logs
import redrive.stores.postgres.store
import redrive.stores.sqlite.store
import redrive.worker.worker
from redrive.features import installed

installed()

__all__ = ["httpx", "pydantic", "redrive"]
