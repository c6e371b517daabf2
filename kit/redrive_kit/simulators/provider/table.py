"""How a simulated provider is configured in ``redrive.toml``."""

from __future__ import annotations

from typing import Any

NAME = "simulated"


def table_of(url: str, *, auth_env: str | None = None) -> dict[str, Any]:
    """Returns what ``[providers.NAME]`` says for a simulated provider at this address."""
    return {
        "base_url": url,
        **({} if auth_env is None else {"auth_env": auth_env}),
        "start": {"url": "/jobs", "body": {"payload": "{payload}", "callback_url": "{callback_url?}"}},
        "poll": {"url": "/jobs?ids={ids}", "list": "jobs", "next": "next"},
        "cancel": {"url": "/jobs/{id}/cancel"},
        "find": {"url": "/jobs?key={key}", "list": "jobs"},
    }


def toml_of(url: str, name: str = NAME, *, auth_env: str | None = None) -> str:
    """Returns the same as lines of ``redrive.toml``."""
    lines: list[str] = []
    tables: dict[str, Any] = {name: table_of(url, auth_env=auth_env)}
    for part, values in (("", tables[name]), *((f".{k}", v) for k, v in tables[name].items() if isinstance(v, dict))):
        lines.append(f"[providers.{name}{part}]")
        lines += [
            f"{key} = {_written(value)}"
            for key, value in values.items()
            if key == "body" or not isinstance(value, dict)
        ]
    return "\n".join(lines)


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_written(one)}" for key, one in value.items()) + " }"
    return f'"{value}"'
