"""Finds the application a command is about."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from redrive.app import DEFAULT_NAME, App
from redrive.cli.support import output
from redrive.errors import ConfigError, RedriveError, WrongSetting
from redrive.settings import configured_app, load_settings, misspelt

MOST_ERROR_LINES = 6
_DJANGO_NOT_SET_UP = ("ImproperlyConfigured", "AppRegistryNotReady")
_REDRIVE = Path(__file__).parents[2]
_PYTHON = Path(sysconfig.get_path("stdlib"))


@dataclass(slots=True)
class Loaded:
    """An application and where it came from; without ``module`` it has only the built-in kinds."""

    app: App
    spec: str | None = None
    module: ModuleType | None = None


def load(url: str | None, spec: str | None, *, warns: bool = True) -> Loaded:
    """Returns the application of ``--app`` or ``REDRIVE_APP``, else a bare one. ``warns``: of misspelt settings of its
    features; not where a log has it.

    Its store is that of ``--url``, else of ``REDRIVE_URL``, else the application's own: whoever runs a command decides
    where it acts, also for an application with a URL written in its code.
    """
    chosen = url or os.environ.get("REDRIVE_URL")
    if chosen:
        _check_url(chosen, "--url" if url else "REDRIVE_URL")
    wanted = spec or configured_app()
    if wanted is None:
        return Loaded(App(url, settings=load_settings(url=url, bare=True)))
    output.know_app()
    loaded = _import(wanted)
    loaded.app.spec = loaded.spec
    if chosen:
        loaded.app.use(chosen)
    if loaded.app.name == DEFAULT_NAME and loaded.spec is not None:
        loaded.app.owner = loaded.spec
    for text in misspelt(loaded.app.features) if warns else ():
        output.warn(text)
    return loaded


def _check_url(url: str, source: str) -> None:
    """Refuses a URL by where it was said, before an application that uses it is blamed."""
    try:
        App.check_url(url)
    except WrongSetting as error:
        error.message = f"{source}: {error.message}"
        raise


def _import(spec: str) -> Loaded:
    name, _, attribute = spec.partition(":")
    attribute = attribute or "app"
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        raise WrongSetting(f"--app names a file: {name}", hint=f"name the module: --app {dotted}:{attribute}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise WrongSetting(f"{spec!r} is not module:app", hint="for example --app mypackage.tasks:app")
    module = _module(name)
    found = getattr(module, attribute, None)
    if isinstance(found, App):
        return Loaded(found, f"{name}:{attribute}", module)
    apps = [f"--app {name}:{known}" for known, value in vars(module).items() if isinstance(value, App)]
    hint = f"it has: {', '.join(apps)}" if apps else f"{name} has no redrive App; make one: app = App()"
    if found is None and not hasattr(module, attribute):
        raise WrongSetting(f"the module {name} has no attribute {attribute!r}", hint=hint)
    raise WrongSetting(f"{name}:{attribute} is a {type(found).__name__}, not a redrive App", hint=hint)


def _module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except RedriveError as error:  # it was raised for what the module says: it keeps its own code and hint
        error.message = f"{name} cannot be used: {error.message}{_place(error)}"
        raise error from None
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise WrongSetting(
                f"there is no module {name!r} (looked in {here} and the installed packages)",
                hint="start the command in the project's directory, or install the project",
            ) from None
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> ConfigError:
    whole = f"python -c 'import {name}' shows all of it"
    hint = "correct it there, and try again" if isinstance(error, SyntaxError) else whole
    if type(error).__module__.startswith("django.") and type(error).__name__ in _DJANGO_NOT_SET_UP:
        hint = (
            f"Django is not set up: give --app a module that sets DJANGO_SETTINGS_MODULE, calls django.setup() and "
            f"imports the App from {name} then, as wsgi.py does it for the server"
        )
    return ConfigError(f"importing {name} failed: {error_text(error)}", hint=hint)


def error_text(error: BaseException) -> str:
    """Returns an exception of the application in its own words, a few lines of them, with its place on the first."""
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    if isinstance(error, SyntaxError) and len(lines) > 1:
        # First comes the file, then the line itself and a mark below it, as far as Python knows them.
        number = f", line {error.lineno}" if error.lineno else ""
        # The line may be one with a URL in it, and that have a password.
        around = [] if any("://" in line for line in lines[1:-1]) else lines[1:-1]
        return "\n".join([f"{lines[-1]} ({error.filename}{number})", *around])
    more = ["…"] if len(lines) > MOST_ERROR_LINES else []
    return "\n".join([lines[0] + _place(error), *lines[1:MOST_ERROR_LINES], *more])


def _place(error: BaseException) -> str:
    """Returns where it came from: the innermost line of the application, else of a package."""
    frames = [(_distance(frame.filename), frame) for frame in traceback.extract_tb(error.__traceback__)]
    nearest = min((distance for distance, _ in frames), default=2)
    if nearest == 2:
        return ""
    frame = [frame for distance, frame in frames if distance == nearest][-1]
    return f" ({frame.filename}, line {frame.lineno})"


def _distance(filename: str) -> int:
    """Returns 0 for the application's own files, 1 for installed packages, 2 for redrive, Python and what is no
    file."""
    path = Path(filename)
    if filename.startswith("<") or path.is_relative_to(_REDRIVE):
        return 2
    if "site-packages" in path.parts:
        return 1
    return 2 if path.is_relative_to(_PYTHON) else 0
