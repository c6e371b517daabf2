"""Work that somebody else does: providers, which run jobs elsewhere, and how they are spoken to."""

from redrive.remote.callbacks import Callback, CallbackRefused, Callbacks
from redrive.remote.checked import RemoteProvider
from redrive.remote.provider import (
    JobFailure,
    JobState,
    Polled,
    Provider,
    ProviderError,
    ProviderUnknown,
    RemoteItem,
    Status,
)

__all__ = [
    "Callback",
    "CallbackRefused",
    "Callbacks",
    "JobFailure",
    "JobState",
    "Polled",
    "Provider",
    "ProviderError",
    "ProviderUnknown",
    "RemoteItem",
    "RemoteProvider",
    "Status",
]
