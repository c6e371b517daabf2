"""Serves the HTTP API: thin routes over ``ops`` and the worker's health."""

from redrive.api.app import make_api

__all__ = ["make_api"]
