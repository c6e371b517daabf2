"""Imported once by the process that workers are forked from: a fresh interpreter would spend a second on it."""

import pydantic.main
import pydantic.type_adapter

import redrive
import redrive.observe.logs
import redrive.stores.postgres.store
import redrive.stores.sqlite.store

__all__ = ["pydantic", "redrive"]
