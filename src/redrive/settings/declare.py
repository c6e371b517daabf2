"""How settings are declared: a class whose fields are read from environment variables, else from ``redrive.toml``."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from redrive.settings.sources import Environment, FileValues


def setting(name: str, default: Any = ..., **limits: Any) -> Any:
    """Returns a field that is read from this environment variable, or from its lower-case name in ``redrive.toml``.
    ``repr=False``: it is a secret, and shown to nobody; ``examples``: how one that is a map is written."""
    return Field(default, validation_alias=AliasChoices(name, name.lower()), **limits)


class Declared(BaseSettings):
    """Settings by the environment, then by the file, then by their defaults."""

    model_config = SettingsConfigDict(case_sensitive=True, extra="ignore", env_ignore_empty=True, populate_by_name=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, Environment(settings_cls), FileValues(settings_cls)


class FeatureSettings(BaseSettings):
    """The settings of a feature, which names its class as ``Feature(settings=…)``; read with those of redrive. Made in
    code, it has what it is given, and defaults."""

    model_config = SettingsConfigDict(case_sensitive=True, extra="forbid", env_ignore_empty=True, populate_by_name=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def name_of(kind: type[BaseSettings], field: str) -> str:
    """Returns the environment variable of a field."""
    alias = kind.model_fields[field].validation_alias
    return str(alias.choices[0]) if isinstance(alias, AliasChoices) else field


def names_of(kind: type[BaseSettings]) -> list[str]:
    """Returns the environment variables of a class."""
    return [name_of(kind, field) for field in kind.model_fields]


def fields_by_name(kind: type[BaseSettings]) -> dict[str, str]:
    """Returns the fields of a class by each name that the file may have for them."""
    return {name: field for field in kind.model_fields for name in (field, name_of(kind, field).lower())}
