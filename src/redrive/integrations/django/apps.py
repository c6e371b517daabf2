"""``INSTALLED_APPS = […, "redrive.integrations.django"]``: redrive's tables come with ``manage.py migrate``, and so to
the databases of tests."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db import connections
from django.db.models.signals import post_migrate

from redrive.integrations.django.tables import create_tables
from redrive.stores.django_tests import remember_names


class RedriveConfig(AppConfig):  # type: ignore[misc]
    """The setting ``REDRIVE_DATABASE`` names the database that has redrive's tables, if it is not ``default``."""

    name = "redrive.integrations.django"
    label = "redrive"
    verbose_name = "redrive"

    def ready(self) -> None:
        remember_names()
        post_migrate.connect(_migrated, sender=self, dispatch_uid="redrive")


def _migrated(*, using: str, **_: Any) -> None:
    if using == getattr(settings, "REDRIVE_DATABASE", "default"):
        create_tables(connections[using])
