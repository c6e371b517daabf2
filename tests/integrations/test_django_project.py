"""A Django project of its own, with ``manage.py migrate`` and ``manage.py test`` as its owner runs them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from psycopg import conninfo

from redrive import App
from redrive.kernel.ports.store import Query

SETTINGS = """
import json, os
SECRET_KEY = "of a test"
USE_TZ = True
DATABASES = {"default": json.loads(os.environ["DATABASE"])}
INSTALLED_APPS = ["shop", *os.environ["ADDED_APPS"].split()]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
MODELS = """
from django.db import models

class Order(models.Model):
    email = models.EmailField()
"""
TASKS = """
from redrive import App, Context
from redrive.integrations.django import own_connections

tasks = App()

@tasks.task("SEND_RECEIPT")
@own_connections
def send_receipt(ctx: Context, order: int) -> str:
    from shop.models import Order
    return f"receipt to {Order.objects.get(pk=order).email}"
"""
VIEWS = """
from django.db import connection, transaction
from shop.models import Order
from shop.tasks import send_receipt

def place_order(email):
    with transaction.atomic():
        order = Order.objects.create(email=email)
        send_receipt.options(connection=connection).enqueue_sync(order.pk)
    return order.pk
"""
TESTS = """
import asyncio
from django.db import connection
from django.test import TestCase, TransactionTestCase
from redrive.errors import ConfigError
from redrive.testing import using_sync
from shop.models import Order
from shop.tasks import send_receipt, tasks
from shop.views import place_order

def enqueued():
    with connection.cursor() as cursor:
        cursor.execute("select kind from " + ("redrive_" if connection.vendor == "sqlite" else "redrive.") + "v_tasks")
        return [kind for kind, in cursor.fetchall()]

class Views(TestCase):
    def test_an_order_has_its_task(self):
        place_order("a@b.c")
        self.assertEqual(enqueued(), ["SEND_RECEIPT"])

    def test_and_the_next_test_sees_nothing_of_it(self):
        self.assertEqual(enqueued(), [])

class WithoutAConnection(TestCase):
    # The application has the URL of the project's own database, where nothing of a test may end up.

    def test_what_is_enqueued_is_in_the_tests_database(self):
        send_receipt.enqueue_sync(1)
        tasks.sync.enqueue_many([("SEND_RECEIPT", {"order": 2})])
        self.assertEqual(enqueued(), ["SEND_RECEIPT", "SEND_RECEIPT"])

    def test_everything_else_is_refused(self):
        for call in (tasks.sync.get, tasks.sync.cancel):
            with self.assertRaisesRegex(ConfigError, "DATABASES\\['default'\\], which they do not use"):
                call("0193e0a0-0000-7000-8000-000000000000")
        with self.assertRaises(ConfigError):
            asyncio.run(send_receipt.enqueue(1))

class Handlers(TransactionTestCase):
    def test_the_receipt(self):
        with using_sync(tasks) as kit:
            order = Order.objects.create(email="a@b.c")
            task = send_receipt.enqueue_sync(order.pk)
            kit.drain_sync()
            kit.assert_no_failures()
            self.assertEqual(kit.get(task).result, "receipt to a@b.c")
"""
FILES = {
    "settings.py": SETTINGS,
    "manage.py": MANAGE,
    "shop/__init__.py": "",
    "shop/models.py": MODELS,
    "shop/tasks.py": TASKS,
    "shop/views.py": VIEWS,
    "shop/tests.py": TESTS,
}
LATE_TESTS = """
import asyncio
from django.db import transaction
from django.test import TestCase

class LateImport(TestCase):
    def test_nothing_reaches_the_projects_own_database(self):
        from redrive.errors import RedriveError
        from shop.tasks import send_receipt, tasks

        for call in (
            lambda: send_receipt.enqueue_sync(1),
            lambda: tasks.sync.enqueue("SEND_RECEIPT", {"order": 2}),
            lambda: asyncio.run(send_receipt.enqueue(3)),
        ):
            with self.assertRaises(RedriveError), transaction.atomic():
                call()
"""
APP = "redrive.integrations.django"
WITHOUT_ASYNCPG = """
import sys
sys.modules["asyncpg"] = None
import manage
"""
PLACE = "from shop.views import place_order; place_order('a@b.c')"


class Project:
    def __init__(self, folder: Path, database: dict[str, Any], url: str) -> None:
        self.folder, self.database, self.url = folder, database, url
        for name, text in FILES.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")

    def manage(self, *args: str, added: str = APP) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "manage.py", *args, ADDED_APPS=added)

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        own = {"PATH": "/usr/bin:/bin", "DATABASE": json.dumps(self.database), "REDRIVE_URL": self.url, **env}
        own["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
        return subprocess.run(command, cwd=self.folder, env=own, capture_output=True, text=True, timeout=120)


ON_SQLITE = pytest.mark.parametrize("project", ["sqlite"], indirect=True)
ON_POSTGRES = pytest.mark.parametrize("project", ["postgres"], indirect=True)


@pytest.fixture(params=["sqlite", "postgres"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    if request.param == "sqlite":
        path = tmp_path / "db.sqlite3"
        return Project(tmp_path, {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}, f"sqlite:///{path}")
    url: str = request.getfixturevalue("empty_postgres_url")
    parts = conninfo.conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    database = {setting: parts.get(name, "") for setting, name in names.items()}
    return Project(tmp_path, {"ENGINE": "django.db.backends.postgresql", **database}, url)


def test_tables_come_with_manage_py_migrate_and_to_tests(project: Project) -> None:
    asyncio.run(_migrate(project.url))
    tested = project.manage("test")
    assert tested.returncode == 0, tested.stderr
    assert "Ran 5 tests" in tested.stderr
    assert asyncio.run(_kinds(project.url)) == [], "tests have left nothing in the project's own database"
    twice = "from django.core.management import call_command\n" + 2 * "call_command('migrate', run_syncdb=True)\n"
    placed = project.manage("shell", "-c", f"{twice}{PLACE}")
    assert placed.returncode == 0, placed.stderr
    assert asyncio.run(_kinds(project.url)) == ["SEND_RECEIPT"]


@ON_SQLITE
def test_an_application_that_a_test_imports_is_kept_out_too(project: Project) -> None:
    """Without our application among Django's nobody has seen the names that the databases had before the tests."""
    asyncio.run(_migrate(project.url))
    (project.folder / "shop/tests.py").write_text(LATE_TESTS, encoding="utf-8")
    tested = project.manage("test", added="")
    assert tested.returncode == 0, tested.stderr
    assert asyncio.run(_kinds(project.url)) == []


def test_on_sqlite_nothing_of_postgresql_is_needed(project: Project) -> None:
    """The base installation has no asyncpg; on PostgreSQL the error says what to install."""
    (project.folder / "without.py").write_text(WITHOUT_ASYNCPG)
    done = project.run(sys.executable, "without.py", "migrate", ADDED_APPS=APP)
    if "sqlite" in project.url:
        assert done.returncode == 0, done.stderr
        assert asyncio.run(_kinds(project.url)) == []
    else:
        assert "pip install '/path/to/checkout[postgres]'" in done.stderr


async def _migrate(url: str) -> None:
    await App(url).connections.main.migrate()


async def _kinds(url: str) -> list[str]:
    """What a worker would find, with a store that looks at its schema first."""
    async with App(url) as app:
        return [task.kind for task in await (await app.store()).find(Query())]


@ON_POSTGRES
def test_without_tables_the_message_says_what_to_type(project: Project) -> None:
    migrate = "from django.core.management import call_command\ncall_command('migrate', run_syncdb=True)\n"
    refused = project.manage("shell", "-c", migrate + PLACE, added="").stderr
    assert f'or add "{APP}" to INSTALLED_APPS and run: manage.py migrate' in refused
    assert "this application's workers look in" in refused
    command = refused.partition("→ run: redrive ")[2].partition(",")[0].split()
    done = project.run(sys.executable, "-m", "redrive.cli", *command)
    assert done.returncode == 0, done.stderr
    assert asyncio.run(_kinds(project.url)) == []
