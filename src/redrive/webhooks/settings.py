"""The settings of webhooks, by environment variable; in redrive.toml also as ``[webhooks]`` with the fields' names."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

from redrive.settings import FeatureSettings, Settings, setting


def _listed(value: Any) -> list[Any]:
    """Returns a list that is written as JSON, or with commas between its items."""
    if isinstance(value, list | tuple):
        return list(value)
    text = str(value).strip()
    if text.startswith("["):
        found = json.loads(text)
        return found if isinstance(found, list) else [found]
    return [part.strip() for part in text.split(",") if part.strip()]


def _networks(value: Any) -> list[str]:
    try:
        return [str(ipaddress.ip_network(str(one))) for one in _listed(value)]
    except ValueError as error:
        raise ValueError(f"{error}; write networks like 127.0.0.0/8,10.1.2.0/24") from None


def _ports(value: Any) -> list[int]:
    found = [int(one) for one in _listed(value)]
    if any(not 0 < port < 65536 for port in found):
        raise ValueError("a port is from 1 to 65535")
    return found


def _secret(value: str | None) -> str | None:
    """Returns the secret if it can be used; an empty one is none."""
    from redrive.webhooks.signing import key_of

    if value:
        key_of(value)
    return value or None


def _keys(value: Any) -> list[str]:
    from redrive.webhooks.signing import check_keys

    return check_keys([str(one) for one in _listed(value)])


class WebhookSettings(FeatureSettings):
    # Signs for accounts and endpoints that have no secret of their own.
    secret: str | None = setting("ENTERPRISE_WEBHOOK_SECRET", None, repr=False, check=_secret)
    # Encrypt what the store has of secrets, the newest first; see ``signing``.
    secret_keys: list[str] = setting("WEBHOOKS_SECRET_KEYS", [], repr=False, parse=_keys)
    timeout_ms: int = setting("ENTERPRISE_WEBHOOK_TIMEOUT_MS", 5000, ge=100, le=120_000)
    retries: int = setting("ENTERPRISE_WEBHOOK_RETRIES", 3, ge=0, le=12)
    # After these: so many more, with the core's backoff, up to a day apart.
    slow_retries: int = setting("WEBHOOKS_SLOW_RETRIES", 0, ge=0, le=100)
    allow_networks: list[str] = setting("WEBHOOKS_ALLOW_NETWORKS", [], parse=_networks)
    ports: list[int] = setting("WEBHOOKS_PORTS", [], parse=_ports)
    https_only: bool = setting("WEBHOOKS_HTTPS_ONLY", False)
    ca_file: str | None = setting("WEBHOOKS_CA_FILE", None)
    rotation_hours: float = setting("WEBHOOKS_ROTATION_HOURS", 24.0, ge=0, le=8760)
    disable_days: float = setting("WEBHOOKS_DISABLE_DAYS", 5.0, ge=0, le=3650)
    failing_hours: float = setting("WEBHOOKS_FAILING_HOURS", 1.0, ge=0, le=8760)
    log_bytes: int = setting("WEBHOOKS_LOG_BYTES", 4096, ge=0, le=65_536)
    # What has arrived can be sent again while it is kept; longer ones are not.
    body_bytes: int = setting("WEBHOOKS_BODY_BYTES", 65_536, ge=0, le=1_048_576)
    keep_days: float = setting("WEBHOOKS_KEEP_DAYS", 30.0, gt=0, le=36_500)

    @property
    def attempts(self) -> int:
        """How often a delivery is tried at most."""
        return 1 + self.retries + self.slow_retries


def retention(settings: Settings) -> dict[str, float]:
    """Returns how many days rows are kept, by the statement that removes older ones."""
    days = settings.of(WebhookSettings).keep_days
    return {
        "prune_attempts": days,
        "prune_deliveries": days,
        "prune_direct": days,
        "prune_secrets": days,
    }
