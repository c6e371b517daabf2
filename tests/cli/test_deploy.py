"""Units that ``redrive deploy`` prints: complete, accepted by those who read them, and right about time."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from redrive import App, Context
from redrive.ops.deploy.programs import stop_wait
from redrive.settings import Options, load_settings
from tests.cli.conftest import Said

Run = Callable[..., Said]
CONFIGURATION = """
redrive_app = "redrive_kit.examples.shots:app"
[workers.reports]
queues = ["default"]
processes = 2
timeout = 600
[workers.slow_ones]
queues = ["slow"]
"""
UNITS = ("redrive-reports", "redrive-slow-ones", "redrive-http")


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "redrive.toml").write_text(CONFIGURATION)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_supervisor_has_a_program_for_each_group(redrive: Run, configured: Path) -> None:
    told = configparser.ConfigParser(interpolation=None)
    told.read_string(redrive("deploy", "supervisor", "--user", "shop").out)
    assert told["group:redrive"]["programs"].split(",") == [*UNITS]
    reports = told["program:redrive-reports"]
    assert reports["command"].endswith(" work --group reports --metrics-port 9108")
    assert reports["directory"] == str(configured) and reports["user"] == "shop"
    assert (reports["autostart"], reports["autorestart"]) == ("true", "true")
    assert (reports["stopasgroup"], reports["killasgroup"], reports["stopsignal"]) == ("true", "true", "TERM")
    assert reports["stdout_logfile"] == "/var/log/redrive/redrive-reports.log"
    assert int(reports["stopwaitsecs"]) > 600
    ports = {told[f"program:{name}"]["command"].partition("--metrics-port ")[2] for name in UNITS[:2]}
    assert ports == {"9108", "9109"}, "they are on one machine"


def test_what_has_to_be_there_first_is_said(
    redrive: Run, configured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """supervisord does not start at all, with everybody else's programs, where one log folder is missing."""
    logs = tmp_path / "my logs"
    said = redrive("deploy", "supervisor", "--user", "shop", "--logs", logs)
    make = f"install -d -o shop '{logs}'"
    assert (
        make in said.err
        and f";   {make} " in said.out
        and f"deploy supervisor --user shop --logs '{logs}' >" in said.out
    )
    logs.mkdir()
    assert "make it first" not in redrive("deploy", "supervisor", "--user", "shop", "--logs", logs).err
    monkeypatch.setenv("LOGNAME", "root")
    for what in ("supervisor", "systemd"):
        said = redrive("deploy", what)
        assert said.code == 2 and "would run as root" in said.err and "--user" in said.err
    for what in ("kubernetes", "compose"):
        assert "redrive.toml in its working directory" in redrive("deploy", what).out


def test_queues_that_no_group_serves_are_warned_of(redrive: Run, configured: Path) -> None:
    said = redrive("deploy", "kubernetes")
    assert "no group of workers serves webhooks, batches-dispatch" in said.err and "slow" not in said.err


@pytest.mark.parametrize("groups", ["", f"{CONFIGURATION}[workers.rest]\n"], ids=["no groups", "one for all"])
def test_one_worker_for_all_queues_is_no_warning(redrive: Run, configured: Path, groups: str) -> None:
    (configured / "redrive.toml").write_text(groups or 'redrive_app = "redrive_kit.examples.shots:app"\n')
    assert redrive("deploy", "kubernetes").err == ""


def test_queues_of_features_are_served_on_the_default_connection(
    redrive: Run, configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (configured / "redrive.toml").open("a") as file:
        file.write('[connections.main]\nurl = "sqlite:///m.db"\n[connections.far]\nurl = "sqlite:///f.db"\n')
        file.write('[workers.rest]\nconnection = "far"\n')
    assert "no group of workers serves webhooks" in redrive("deploy", "kubernetes").err


def test_units_say_what_comes_first_and_what_runs_at_once(redrive: Run, configured: Path) -> None:
    for what in ("supervisor", "systemd"):
        text = redrive("deploy", what, "--user", "shop").out
        assert "redrive migrate" in text
        assert "runs 1 task at once in each of its processes: concurrency = N in [workers.reports]" in text
        assert "runs 1 task at once: concurrency = N in [workers.slow_ones]" in text


@pytest.mark.parametrize("secret", [None, "s" * 32])
def test_http_stops_soon_unless_a_scheduler_has_it_run_tasks(
    redrive: Run, configured: Path, monkeypatch: pytest.MonkeyPatch, secret: str | None
) -> None:
    if secret is not None:
        monkeypatch.setenv("INTERNAL_WORKER_SECRET", secret)
    told = configparser.ConfigParser(interpolation=None)
    told.read_string(redrive("deploy", "supervisor", "--user", "shop").out)
    wait = int(told["program:redrive-http"]["stopwaitsecs"])
    assert wait == 30 if secret is None else wait > 600


def test_units_name_the_variables_that_have_urls_and_keys(
    redrive: Run, configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INSIGHTS_URL", "sqlite:///i.db")
    monkeypatch.setenv("REDRIVE_URL", "sqlite:///m.db")
    with (configured / "redrive.toml").open("a") as file:
        file.write('[connections.main]\n[connections.insights]\nurl_from = "INSIGHTS_URL"\n')
        file.write('[providers.video]\nbase_url = "https://v.example"\nauth_env = "VIDEO_KEY"\n')
        file.write('[providers.video.start]\nurl = "/jobs"\n[providers.video.poll]\nurl = "/jobs/{id}"\n')
    for what in (("supervisor", "--user", "shop"), ("systemd", "--user", "shop")):
        assert "REDRIVE_URL, INSIGHTS_URL, VIDEO_KEY and other secrets" in redrive("deploy", *what).out
    text = redrive("deploy", "kubernetes").out
    for literal in ("REDRIVE_URL=postgresql://…", "INSIGHTS_URL=postgresql://…", "VIDEO_KEY=…"):
        assert f"--from-literal={literal}" in text
    services = yaml.safe_load(redrive("deploy", "compose").out)["services"]
    assert all("INSIGHTS_URL" in services[name]["environment"] for name in UNITS)


def test_http_runs_no_tasks_beside_the_groups(redrive: Run, configured: Path) -> None:
    told = configparser.ConfigParser(interpolation=None)
    told.read_string(redrive("deploy", "supervisor", "--user", "shop").out)
    assert told["program:redrive-http"]["command"].endswith(" up --no-worker")


def test_a_folder_that_supervisord_cannot_read_is_refused(redrive: Run, configured: Path) -> None:
    for folder in ("/srv/a ;b", "/srv/a #b"):
        said = redrive("deploy", "supervisor", "--user", "shop", "--directory", folder)
        assert said.code == 2 and "for a comment" in said.err and folder in said.err
        assert folder in redrive("deploy", "systemd", "--user", "shop", "--directory", folder).out
    told = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=(";", "#"))
    told.read_string(redrive("deploy", "supervisor", "--user", "shop", "--directory", "/srv/a;b").out)
    assert told["program:redrive-reports"]["directory"] == "/srv/a;b"


def test_without_groups_there_is_one_worker(redrive: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = configparser.ConfigParser(interpolation=None)
    told.read_string(redrive("deploy", "supervisor", "--user", "shop", "--no-http").out)
    assert [name for name in told.sections() if name.startswith("program:")] == ["program:redrive-worker"]


def test_no_unit_has_the_url(redrive: Run, configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_URL", "postgresql://shop:hunter22@db/shop")
    for what in (("supervisor", "--user", "shop"), ("systemd", "--user", "shop"), ("kubernetes",), ("compose",)):
        assert "hunter22" not in redrive("deploy", *what).out


def test_stopping_may_take_longer_than_what_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    app = App("sqlite:///tasks.db", settings=load_settings(grace_ms=60_000, timeout_ms=1_000))

    @app.task("LONG", queue="a", timeout=900)
    async def long(ctx: Context) -> None: ...

    @app.task("SHORT", queue="b")
    async def short(ctx: Context) -> None: ...

    @app.task("ENDLESS", queue="c", timeout=None)
    async def endless(ctx: Context) -> None: ...

    def wait(*queues: str, **more: Any) -> int:
        return stop_wait(app.settings, app.registry, Options(queues=queues, **more))[0]

    assert wait("a", "b") > 900 and "LONG" in stop_wait(app.settings, app.registry, Options(queues=("a",)))[1]
    assert 120 < wait("b") < 900, "longer than the grace"
    assert wait("b", timeout=700.0) > 700, "that of the group"
    assert "no time limit: ENDLESS" in stop_wait(app.settings, app.registry, Options(queues=("c",), timeout=0.0))[1]


def test_systemd_accepts_its_units(redrive: Run, configured: Path) -> None:
    names = redrive("deploy", "systemd", "--user", "root", "--into", "units").out.split()
    assert {Path(name).name for name in names} == {f"{name}.service" for name in UNITS} | {"redrive.target"}
    text = (configured / "units" / "redrive-reports.service").read_text()
    assert "TimeoutStopSec=63" in text and "KillMode=mixed" in text and "ProtectSystem=strict" in text
    assert f"ReadWritePaths={configured}" in text, "the store is a file here"
    if shutil.which("systemd-analyze") is None:
        pytest.skip("NOT VERIFIED: there is no systemd-analyze here")
    done = subprocess.run(["systemd-analyze", "verify", *names], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_systemd_lets_workers_write_where_their_stores_are(redrive: Run, here: Path) -> None:
    (here / "redrive.toml").write_text(
        f"[connections.main]\nurl = 'sqlite:///{here}/main.db'\n"
        f"[connections.far]\nurl = 'sqlite:///{here}/in there/$x%h/far.db'\n"
    )
    said = redrive("deploy", "systemd", "--user", "shop", "--directory", f"{here}/a%b").out
    assert f"ReadWritePaths={here}\n" in said and f'ReadWritePaths="{here}/in there/$x%%h"\n' in said
    assert f"WorkingDirectory={here}/a%%b\n" in said


def test_kubernetes_has_probes_patience_and_no_rights(redrive: Run, configured: Path) -> None:
    text = redrive("deploy", "kubernetes", "--image", "registry/shop:1.2").out
    found = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}
    [migration] = [name for kind, name in found if kind == "Job"]
    assert migration.startswith("redrive-migrate-")
    assert migration not in redrive("deploy", "kubernetes", "--image", "registry/shop:1.3").out, (
        "a Job cannot be changed"
    )
    assert set(found) == {*(("Deployment", name) for name in UNITS), ("Service", UNITS[2]), ("Job", migration)}
    for name in UNITS:
        pod = found["Deployment", name]["spec"]["template"]["spec"]
        [box] = pod["containers"]
        assert box["image"] == "registry/shop:1.2" and box["envFrom"] == [{"secretRef": {"name": "redrive"}}]
        assert pod["securityContext"]["runAsNonRoot"] and box["securityContext"]["readOnlyRootFilesystem"]
        assert pod["terminationGracePeriodSeconds"] > (29 if name == "redrive-http" else 600)
        [port] = box["ports"]
        assert str(port["containerPort"]) in box["args"] and "0.0.0.0" in box["args"]
        assert {box[f"{one}Probe"]["httpGet"]["port"] for one in ("startup", "liveness", "readiness")} == {port["name"]}
        assert box["readinessProbe"]["httpGet"]["path"] == "/readyz" and "memory" in box["resources"]["limits"]
        selector = found["Deployment", name]["spec"]["selector"]["matchLabels"]
        assert selector.items() <= found["Deployment", name]["spec"]["template"]["metadata"]["labels"].items()
    assert found["Service", UNITS[2]]["spec"]["selector"] == {"app.kubernetes.io/name": UNITS[2]}
    for one in found.values():
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


def test_compose_brings_everything(redrive: Run, configured: Path) -> None:
    found = yaml.safe_load(redrive("deploy", "compose", "--image", "shop").out)
    services = found["services"]
    assert set(services) == {"store", "migrate", *UNITS, "prometheus", "grafana"}
    assert [name for name, one in services.items() if one.get("profiles") == ["monitoring"]] == [
        "prometheus",
        "grafana",
    ]
    for name in UNITS:
        one = services[name]
        assert one["read_only"] and one["user"] == "10001:10001" and one["cap_drop"] == ["ALL"]
        assert int(one["stop_grace_period"].rstrip("s")) > (29 if name == "redrive-http" else 600)
        assert one["entrypoint"] == ["redrive"], "whatever the image begins with"
        assert one["env_file"] == [{"path": ".env", "required": False}], "alerts and the rest are told, too"
        assert one["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    used = {one["source"] for name in ("prometheus", "grafana") for one in services[name]["configs"]}
    assert used == set(found["configs"])
    scrape = yaml.safe_load(found["configs"]["prometheus.yml"]["content"])
    [job] = scrape["scrape_configs"]
    assert [target.split(":")[0] for target in job["static_configs"][0]["targets"]] == [*UNITS]
    assert job["authorization"]["credentials"].startswith("${REDRIVE_METRICS_TOKEN")
    rules = found["configs"]["redrive-rules.yml"]["content"]
    assert "$$labels" in rules and "$labels" not in rules.replace("$$labels", ""), "Compose would replace it"
