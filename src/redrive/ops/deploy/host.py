"""Units for one machine: supervisord and systemd."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from redrive.errors import InvalidInput
from redrive.ops.deploy.programs import Program

SUPERVISOR_HEAD = """\
; Written by redrive deploy supervisor from the settings; write it again after they have changed.
;   {folder}     # first: without the folder supervisord does not start at all
;   redrive migrate     # before they start, and after each deploy: workers need the tables
;   redrive deploy supervisor {options} > /etc/supervisor/conf.d/redrive.conf && supervisorctl update
; After a deploy, one program after the other, so that work goes on meanwhile:
;   {restarts}
; {secrets} and other secrets belong into the environment of supervisord, not into this file.
"""
SYSTEMD_HEAD = """\
# Written by redrive deploy systemd from the settings; write it again after they have changed.
# Before it starts for the first time, and after each deploy: redrive migrate
# After a deploy: systemctl restart {name}
"""


@dataclass(slots=True, frozen=True)
class Place:
    """Where programs run: by which command, in which directory, as whom; ``environment`` holds no secrets."""

    command: str
    directory: Path
    user: str
    logs: Path
    environment: Mapping[str, str]
    environment_file: Path = Path("/etc/redrive/environment")
    writes: Sequence[Path] = ()  # what they write besides
    secrets: Sequence[str] = ("REDRIVE_URL",)  # the variables that have URLs, and others

    @property
    def folder(self) -> str:
        """The command that makes the folder of log files."""
        return shlex.join(["install", "-d", "-o", self.user, str(self.logs)])


def command_of(program: Program, place: Place) -> list[str]:
    port = () if program.metrics_port is None else ("--metrics-port", str(program.metrics_port))
    return [*shlex.split(place.command), *program.arguments, *port]


def supervisor(programs: Sequence[Program], place: Place) -> str:
    """Returns a file for supervisord: a program each, and a group of all."""
    _refuse_comments(place)
    names = [program.name for program in programs]
    restarts = " && ".join(f"supervisorctl restart redrive:{name}" for name in names)
    given = ",".join(f'{name}="{_escaped(value)}"' for name, value in place.environment.items() if '"' not in value)
    secrets, options = ", ".join(place.secrets), shlex.join(["--user", place.user, "--logs", str(place.logs)])
    parts = [SUPERVISOR_HEAD.format(restarts=restarts, folder=place.folder, options=options, secrets=secrets)]
    for program in programs:
        log = place.logs / f"{program.name}.log"
        lines = [
            f"[program:{program.name}]",
            f"command={_escaped(shlex.join(command_of(program, place)))}",
            f"directory={_escaped(str(place.directory))}",
            f"user={place.user}",
            f"environment={given}",
            *([f"; {program.at_once}"] if program.at_once else []),
            "; one program: with processes = N it starts and replaces its children itself",
            "numprocs=1",
            "autostart=true",
            "autorestart=true",
            "startsecs=3",
            "startretries=100",
            "stopsignal=TERM",
            f"; {program.why}",
            f"stopwaitsecs={program.stop_wait}",
            "stopasgroup=true",
            "killasgroup=true",
            "redirect_stderr=true",
            f"stdout_logfile={_escaped(str(log))}",
            "stdout_logfile_maxbytes=50MB",
            "stdout_logfile_backups=5",
        ]
        parts.append("\n".join(lines) + "\n")
    parts.append(f"[group:redrive]\nprograms={','.join(names)}\n")
    return "\n".join(parts)


def _refuse_comments(place: Place) -> None:
    """Refuses what supervisord would cut off: in its files a comment begins behind a space, and nothing quotes it."""
    for text in (str(place.directory), str(place.logs), place.command, *place.environment.values()):
        if any(mark in text for mark in (" ;", " #", "\t;", "\t#")):
            raise InvalidInput(
                f"supervisord takes what stands behind ' ;' or ' #' for a comment: {text!r}",
                hint="name the folder otherwise, or by a link without that; systemd has no such trouble",
            )


def systemd(programs: Sequence[Program], place: Place) -> dict[str, str]:
    """Returns the units by their file names: a service each, and a target of all."""
    units = {f"{program.name}.service": _service(program, place) for program in programs}
    wants = " ".join(units)
    target = f"[Unit]\nDescription=All of redrive\nWants={wants}\n\n[Install]\nWantedBy=multi-user.target\n"
    return units | {"redrive.target": SYSTEMD_HEAD.format(name="redrive.target") + target}


def _service(program: Program, place: Place) -> str:
    command = " ".join(_quoted(part.replace("$", "$$")) for part in command_of(program, place))
    given = [f"Environment={_quoted(f'{name}={value}')}" for name, value in place.environment.items()]
    lines = [
        "[Unit]",
        f"Description=redrive {' '.join(program.arguments)}",
        "Wants=network-online.target",
        "After=network-online.target",
        "PartOf=redrive.target",
        # Its store may be away for hours: it is started again for as long.
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=exec",
        *([f"# {program.at_once}"] if program.at_once else []),
        f"ExecStart={command}",
        f"WorkingDirectory={_escaped(str(place.directory))}",
        f"User={place.user}",
        *given,
        f"# {', '.join(place.secrets)} and other secrets, readable by root alone",
        f"EnvironmentFile=-{place.environment_file}",
        "Restart=always",
        "RestartSec=2",
        "KillSignal=SIGTERM",
        "# the first process is asked to stop and asks its children; whatever is left after that is killed as a group",
        "KillMode=mixed",
        f"# {program.why}",
        f"TimeoutStopSec={program.stop_wait}",
        f"SyslogIdentifier={program.name}",
        "NoNewPrivileges=yes",
        "PrivateTmp=yes",
        "ProtectSystem=strict",
        "ProtectKernelTunables=yes",
        "ProtectControlGroups=yes",
        "RestrictSUIDSGID=yes",
        *(f"ReadWritePaths={_quoted(str(path))}" for path in place.writes),
        "",
        "[Install]",
        "WantedBy=redrive.target",
    ]
    return SYSTEMD_HEAD.format(name=program.name) + "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Both replace what stands behind a percent sign."""
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """Returns a word of several as systemd reads it; in commands a dollar stands for more, too."""
    plain = _escaped(text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"' if set(plain) & set(" \"'\\;") else plain
