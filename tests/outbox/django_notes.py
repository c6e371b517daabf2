"""A Django application of one model whose saves and deletes are projected: run by the tests as a process of its own."""

from __future__ import annotations

import json
import os

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": json.loads(os.environ["DATABASE"])},
    INSTALLED_APPS=["redrive.integrations.django"],
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()

from django.db import connection, models, transaction  # noqa: E402
from django.db.models import F  # noqa: E402

from redrive.errors import ConfigError, InvalidInput  # noqa: E402
from redrive.outbox.integrations.django import projects  # noqa: E402


class Note(models.Model):  # type: ignore[misc]
    title = models.CharField(max_length=100)
    price = models.DecimalField(max_digits=10, decimal_places=2, null=True)
    version = models.BigIntegerField(default=1)

    class Meta:
        app_label = "notes"


class Draft(models.Model):  # type: ignore[misc]
    title = models.CharField(max_length=100)
    version = models.BigIntegerField(default=1)

    class Meta:
        app_label = "notes"


class Tag(models.Model):  # type: ignore[misc]
    name = models.CharField(max_length=10, primary_key=True)

    class Meta:
        app_label = "notes"


def refused(work: object, error: type[Exception], said: str) -> None:
    try:
        work()  # type: ignore[operator]
    except error as found:
        assert said in str(found), found
        return
    raise AssertionError(f"was not refused: {said}")


def main() -> None:
    for _ in range(2):  # twice is once
        projects(Note, "notes")
    projects(Draft, "notes", document=lambda draft: None if draft.title == "hidden" else {"title": draft.title})
    refused(lambda: projects(Tag, "notes"), ConfigError, "has no field 'version'")
    with connection.schema_editor() as editor:
        editor.create_model(Note)
        editor.create_model(Draft)

    refused(lambda: Note.objects.create(title="alone"), InvalidInput, "outside of a transaction")
    assert Note.objects.count() == 0
    with transaction.atomic():
        Note.objects.create(title="undone")
        transaction.set_rollback(True)
    with transaction.atomic():
        note = Note.objects.create(pk=5, title="milk", price="1.50")
        note.title, note.version = "butter", F("version") + 1
        note.save()
    with transaction.atomic():
        note = Note.objects.get(pk=5)
        refused(lambda: _delete_unknown(note), InvalidInput, "is not known")
    note = Note.objects.get(pk=5)
    _save(note)  # it changes nothing, and publishes nothing
    note.title = "same version"
    refused(lambda: _save(note), InvalidInput, "had 2 before")
    note.version = 3
    refused(lambda: _save(note, update_fields=["title"]), InvalidInput, "had 2 before")
    assert Note.objects.get(pk=5).title == "butter"
    with transaction.atomic():
        gone = Note.objects.create(pk=6, title="gone")
        gone.delete()
        Note.objects.create(pk=6, title="back")
        hidden = Draft.objects.create(pk=7, title="seen")
        hidden.title, hidden.version = "hidden", 2
        hidden.save()
        Draft.objects.create(pk=8, title="hidden")


def _save(note: Note, **options: list[str]) -> None:
    with transaction.atomic():
        note.save(**options)


def _delete_unknown(note: Note) -> None:
    with transaction.atomic():
        note.version = F("version") + 1
        note.delete()


main()
