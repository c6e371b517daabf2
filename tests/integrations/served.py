"""Small web applications that enqueue, for real servers to serve: Flask, and Django under WSGI and ASGI.

The store's URL comes from ``REDRIVE_URL``. ``PRELOAD_USES=1`` has the module use it when it is imported, as some
applications do, so that a server that forks its workers hands them a store that is in use.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from flask import Flask

from redrive import App

redrive = App()
if os.environ.get("PRELOAD_USES"):
    redrive.sync.enqueue("IMPORTED")

flask = Flask(__name__)


@flask.get("/async")
async def flask_async() -> str:
    return str((await redrive.enqueue("ASYNC")).id)


@flask.get("/sync")
def flask_sync() -> str:
    return str(redrive.sync.enqueue("SYNC").id)


@flask.get("/run")
def flask_run() -> str:
    return str(asyncio.run(redrive.enqueue("RUN")).id)


async def django_async(_: HttpRequest) -> HttpResponse:
    return HttpResponse(str((await redrive.enqueue("ASYNC")).id))


def django_sync(_: HttpRequest) -> HttpResponse:
    return HttpResponse(str(redrive.sync.enqueue("SYNC").id))


def django_run(_: HttpRequest) -> HttpResponse:
    return HttpResponse(str(asyncio.run(redrive.enqueue("RUN")).id))


urlpatterns: list[Any] = [
    path("async", django_async),
    path("sync", django_sync),
    path("run", django_run),
]

if not settings.configured:
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="test", DEBUG=False, USE_TZ=True)
    django.setup()
wsgi = get_wsgi_application()
asgi = get_asgi_application()
