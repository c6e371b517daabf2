"""The providers of an application: those that it brings, and those that are configured."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from redrive.errors import ConfigError
from redrive.kernel.classify import FailureRules
from redrive.remote.checked import CALL_SECONDS, RemoteProvider
from redrive.remote.provider import Provider, ProviderUnknown
from redrive.settings.providers import HttpProviderSettings

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class ProviderRegistry:
    """Providers by name. Configured ones are made when they are first asked for."""

    def __init__(
        self, configured: Mapping[str, HttpProviderSettings], rules: FailureRules, seconds: float = CALL_SECONDS
    ) -> None:
        self._configured = configured
        self._seconds = seconds
        self._rules = rules
        self._known: dict[str, RemoteProvider] = {}

    def __iter__(self) -> Iterator[str]:
        return iter({**self._configured, **self._known})

    def add(self, name: str, provider: Any) -> None:
        """Takes up a provider that the application brings. In its place a configured one of that name is refused: two
        sources would say different things."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"a provider is named in small letters, digits, - and _, not {name!r}")
        if name in self._known or name in self._configured:
            where = "in the settings (providers)" if name in self._configured else "already"
            raise ConfigError(f"there is a provider {name!r} {where}", hint="give one of them another name")
        if isinstance(provider, type) or not isinstance(provider, Provider):
            what = f"the class {provider.__name__}" if isinstance(provider, type) else type(provider).__name__
            raise ConfigError(
                f"the provider {name!r} is {what}, without start and poll that can be called",
                hint="give an object with async start(item, idempotency_key) and async poll(ids)",
            )
        self._known[name] = RemoteProvider(name, provider, self._rules, self._seconds)

    def of(self, name: str) -> RemoteProvider:
        """Returns a provider by its name; one that there is not is refused."""
        if name in self._known:
            return self._known[name]
        if name in self._configured:
            made = RemoteProvider(name, _http(name, self._configured[name]), self._rules)
            return self._known.setdefault(name, made)
        raise unknown_provider(name, [*self])

    def check(self) -> None:
        """Makes all configured providers: a secret that is missing is found when a worker starts, not with its first
        task."""
        for name in self._configured:
            self.of(name)

    async def close(self) -> None:
        """Closes what providers have open in this event loop."""
        for one in self._known.values():
            await one.close()


def _http(name: str, settings: HttpProviderSettings) -> Provider:
    try:
        from redrive.remote.http_provider import HttpProvider
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the provider {name!r} needs httpx, which is not installed ({error.name} is missing)",
            hint="pip install '/path/to/checkout[http]'",
        ) from error
    try:
        return HttpProvider(settings)
    except ConfigError as error:
        raise ConfigError(f"providers.{name}: {error.message}", hint=error.hint) from None


def unknown_provider(name: str, known: list[str]) -> ProviderUnknown:
    """Returns what somebody is told who names a provider that there is not."""
    close = difflib.get_close_matches(name, known, 1)
    there = f"there are: {', '.join(known)}" if known else "say it in redrive.toml as [providers.NAME]"
    return ProviderUnknown(f"there is no provider {name!r}", hint=f"did you mean {close[0]}?" if close else there)
