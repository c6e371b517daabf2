"""Makes a file for Docker Compose: the store, what migrates it, every program, Prometheus and Grafana."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redrive.ops.deploy.programs import IN_IMAGE, Program
from redrive.ops.deploy.yaml_text import Block, documents

HEAD = """\
# Written by redrive deploy compose from the settings; write it again after they have changed.
# {image}
# What stands in .env reaches all programs: REDRIVE_ALERT_WEBHOOK, SENTRY_DSN and whatever else the settings need.
#   echo POSTGRES_PASSWORD=$(openssl rand -hex 16) > .env
#   echo REDRIVE_METRICS_TOKEN=$(openssl rand -hex 16) >> .env
#   docker compose run --rm redrive-http tokens create ann --role admin   # HTTP is served where there are tokens
#   docker compose up -d                          # --profile monitoring: with Prometheus and Grafana
"""
METRICS_TOKEN = "${REDRIVE_METRICS_TOKEN:?set it in .env}"  # noqa: S105 (where it is)
URL = "postgresql://redrive:${POSTGRES_PASSWORD:?set it in .env}@store/redrive"
Document = dict[str, Any]


@dataclass(slots=True, frozen=True)
class Monitoring:
    """What Prometheus and Grafana are given."""

    rules: str
    dashboard: Mapping[str, Any]


def compose(
    programs: Sequence[Program],
    image: str,
    environment: Mapping[str, str],
    variables: Iterable[str],
    monitoring: Monitoring,
) -> str:
    """Returns the file. ``variables``: of the environment, which have the URLs of further connections."""
    given = {**environment, "REDRIVE_URL": URL, "REDRIVE_METRICS_TOKEN": METRICS_TOKEN} | {
        name: f"${{{name}:?set it in .env}}" for name in variables
    }
    common = _common(image, given)
    services: Document = {"store": _store(), "migrate": _migrate(common)}
    services |= {program.name: _service(program, common) for program in programs}
    services |= _watching()
    return HEAD.format(image=IN_IMAGE) + documents(
        {
            "services": services,
            "configs": _configs(programs, monitoring),
            "volumes": {"store": {}, "prometheus": {}, "grafana": {}},
        }
    )


def _common(image: str, environment: Mapping[str, str]) -> Document:
    return {
        "image": image,
        "entrypoint": ["redrive"],
        "environment": dict(environment),
        "env_file": [{"path": ".env", "required": False}],
        "read_only": True,
        "tmpfs": ["/tmp"],  # noqa: S108 (the container's own)
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "user": "10001:10001",
    }


def _store() -> Document:
    return {
        "image": "postgres:17-alpine",
        "environment": {
            "POSTGRES_USER": "redrive",
            "POSTGRES_DB": "redrive",
            "POSTGRES_PASSWORD": "${POSTGRES_PASSWORD:?set it in .env}",
        },
        "volumes": ["store:/var/lib/postgresql/data"],
        "healthcheck": {"test": ["CMD", "pg_isready", "-U", "redrive"], "interval": "2s", "retries": 30},
        "restart": "unless-stopped",
    }


def _migrate(common: Document) -> Document:
    waits = {"store": {"condition": "service_healthy"}}
    return common | {"command": ["migrate"], "depends_on": waits, "restart": "on-failure"}


def _service(program: Program, common: Document) -> Document:
    extra = ["--metrics-port", str(program.metrics_port), "--metrics-host", "0.0.0.0"]  # noqa: S104
    if program.metrics_port is None:
        extra = ["--host", "0.0.0.0", "--port", str(program.port)]  # noqa: S104
    ask = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{program.probed}/readyz', timeout=5)"
    found = common | {
        "command": [*program.arguments, *extra],
        "depends_on": {"migrate": {"condition": "service_completed_successfully"}},
        "healthcheck": {
            "test": ["CMD", "python", "-c", ask],
            "interval": "10s",
            "timeout": "6s",
            "start_period": "30s",
        },
        "stop_signal": "SIGTERM",
        "stop_grace_period": f"{program.stop_wait}s",
        "restart": "unless-stopped",
        "deploy": {"resources": {"limits": {"memory": f"{512 * program.processes}M"}}},
    }
    if program.port is not None:
        found["ports"] = [f"127.0.0.1:{program.port}:{program.port}"]
    return found


def _watching() -> Document:
    monitoring = {"profiles": ["monitoring"], "restart": "unless-stopped"}
    return {
        "prometheus": monitoring
        | {
            "image": "prom/prometheus:v3.1.0",
            "configs": [_config("prometheus.yml", "/etc/prometheus"), _config("redrive-rules.yml", "/etc/prometheus")],
            "volumes": ["prometheus:/prometheus"],
        },
        "grafana": monitoring
        | {
            "image": "grafana/grafana:11.4.0",
            "configs": [
                _config("datasource.yml", "/etc/grafana/provisioning/datasources"),
                _config("dashboards.yml", "/etc/grafana/provisioning/dashboards"),
                _config("redrive.json", "/var/lib/grafana/dashboards"),
            ],
            "ports": ["127.0.0.1:3000:3000"],
            "volumes": ["grafana:/var/lib/grafana"],
        },
    }


def _configs(programs: Sequence[Program], monitoring: Monitoring) -> Document:
    targets = [f"{program.name}:{program.probed}" for program in programs]
    scrape = documents(
        {
            "global": {"scrape_interval": "10s"},
            "rule_files": ["/etc/prometheus/redrive-rules.yml"],
            "scrape_configs": [
                {
                    "job_name": "redrive",
                    "authorization": {"credentials": "METRICS_TOKEN"},
                    "static_configs": [{"targets": targets}],
                }
            ],
        }
    )
    source = {"name": "Prometheus", "type": "prometheus", "url": "http://prometheus:9090", "isDefault": True}
    provider = {"name": "redrive", "type": "file", "options": {"path": "/var/lib/grafana/dashboards"}}
    texts = {
        "prometheus.yml": scrape,
        "redrive-rules.yml": monitoring.rules,
        "datasource.yml": documents({"apiVersion": 1, "datasources": [source]}),
        "dashboards.yml": documents({"apiVersion": 1, "providers": [provider]}),
        "redrive.json": json.dumps(monitoring.dashboard),
    }
    # Compose replaces what stands behind a dollar; one of these it shall.
    ready = {name: text.replace("$", "$$").replace("METRICS_TOKEN", METRICS_TOKEN) for name, text in texts.items()}
    return {name: {"content": Block(text)} for name, text in ready.items()}


def _config(name: str, folder: str) -> Document:
    return {"source": name, "target": f"{folder}/{name}"}
