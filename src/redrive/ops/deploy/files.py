"""The files that ``redrive deploy`` prints: for supervisord, systemd, Kubernetes and Docker Compose.

Each is a template beside this file, in the language of whoever reads it; here is what is put into them.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from redrive.errors import InvalidInput
from redrive.ops.deploy.programs import Program

IN_IMAGE = (
    "The image has the application and redrive.toml in its working directory: groups, routes, rules are read there."
)


@dataclass(slots=True, frozen=True)
class Place:
    """Where programs run on a machine: by which command, in which directory, as whom; ``environment`` holds no
    secrets."""

    command: str
    directory: Path
    user: str
    logs: Path
    environment: Mapping[str, str]
    writes: Sequence[Path] = ()  # what they write besides
    secrets: Sequence[str] = ("REDRIVE_URL",)  # the variables that have URLs, and others

    def __post_init__(self) -> None:
        paths = {"a folder or file": [self.directory, self.logs, *self.writes]}
        named = {"the command": [self.command], "the user": [self.user], "the environment": self.environment.values()}
        for what, texts in (paths | named).items():
            for text in texts:
                _check_line(what, str(text))

    @property
    def folder(self) -> str:
        """The command that makes the folder of log files."""
        return shlex.join(["install", "-d", "-o", self.user, str(self.logs)])

    def command_of(self, program: Program) -> list[str]:
        port = () if program.metrics_port is None else ("--metrics-port", str(program.metrics_port))
        return [*shlex.split(self.command), *program.arguments, *port]


def supervisor(programs: Sequence[Program], place: Place) -> str:
    """Returns a file for supervisord: a program each, and a group of all."""
    # There a comment begins behind a space, and nothing quotes it.
    for text in (str(place.directory), str(place.logs), place.command, *place.environment.values()):
        if any(mark in text for mark in (" ;", " #", "\t;", "\t#")):
            raise InvalidInput(
                f"supervisord takes what stands behind ' ;' or ' #' for a comment: {text!r}",
                hint="name the folder otherwise, or by a link without that; systemd has no such trouble",
            )
    return _render("supervisor.conf", programs=programs, place=place)


def systemd(programs: Sequence[Program], place: Place) -> dict[str, str]:
    """Returns the units by their file names: a service each, and a target of all."""
    units = {f"{one.name}.service": _render("systemd.service", program=one, place=place) for one in programs}
    return units | {"redrive.target": _render("systemd.target", programs=programs)}


def kubernetes(programs: Sequence[Program], image: str, environment: Mapping[str, str], secrets: Sequence[str]) -> str:
    """Returns the manifests: a Deployment for each program, a Service for HTTP, a Job that migrates. ``secrets``: the
    variables of the environment that have URLs of stores, or keys."""
    return _render("kubernetes.yml", programs=programs, image=image, environment=environment, secrets=secrets)


def compose(
    programs: Sequence[Program],
    image: str,
    environment: Mapping[str, str],
    variables: Sequence[str],
    rules: str,
    dashboard: Mapping[str, Any],
) -> str:
    """Returns a file for Docker Compose: the store, what migrates it, every program; Prometheus with these ``rules``,
    and Grafana. ``variables``: of the environment, which have the URLs of further connections."""
    monitoring = {"rules": rules, "dashboard": dashboard}
    return _render(
        "compose.yml", programs=programs, image=image, environment=environment, variables=variables, **monitoring
    )


def _check_line(what: str, text: str) -> None:
    """Refuses what would begin another line of a file that has one setting a line."""
    if any(ord(sign) < 32 for sign in text):
        raise InvalidInput(f"{what} has a line break or another control character: {text!r}")


def _render(name: str, **values: Any) -> str:
    return _environment().get_template(f"{name}.j2").render(values, in_image=IN_IMAGE)


@cache
def _environment() -> Environment:
    made = Environment(  # noqa: S701 (no HTML: what needs quoting is quoted by the filters)
        loader=PackageLoader("redrive.ops.deploy"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "json": lambda value: json.dumps(value, ensure_ascii=False),
        "shell": shlex.join,
        "percent": _percent,
        "word": _word,
        "digest": lambda text: hashlib.sha256(text.encode()).hexdigest()[:8],
    }
    return made


def _percent(value: object) -> str:
    """Both supervisord and systemd replace what stands behind a percent sign."""
    return str(value).replace("%", "%%")


def _word(value: object) -> str:
    """Returns a word of several as systemd reads it."""
    plain = _percent(value)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"' if set(plain) & set(" \"'\\;") else plain
