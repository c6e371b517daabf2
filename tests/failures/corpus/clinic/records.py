"""Records of patients."""

import csv
import io
import uuid
import zipfile

import pandas
from django.conf import settings

if not settings.configured:
    settings.configure(
        USE_TZ=True, DEBUG=True, DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
    )

from django.core import exceptions, validators
from django.db.utils import ConnectionHandler

_HANDLER = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})


def packed():
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("readme", "x")
    return target.getvalue()


def column(frame, name):
    return pandas.DataFrame(frame)[name].sum()


def table(text):
    return pandas.read_csv(io.StringIO(text))


def merge(left, right, on):
    return pandas.DataFrame(left).merge(pandas.DataFrame(right), on=on)


def number(text):
    return uuid.UUID(text)


def admit(mail):
    validators.validate_email(mail)


def age(value):
    validators.MaxValueValidator(120)(value)


def django_twice(name):
    with _HANDLER["default"].cursor() as cursor:
        cursor.execute("create table if not exists ward (name text primary key)")
        cursor.execute("insert into ward values (%s)", [name])
        cursor.execute("insert into ward values (%s)", [name])


def forbidden(user):
    raise exceptions.PermissionDenied(f"{user} may not look")


def rows(text):
    return list(csv.DictReader(io.StringIO(text), strict=True))


def decode(data):
    return data.decode("utf-8")
