"""Makes the Grafana dashboard from the table of metrics: a panel for each of them, and a row of what matters first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from redrive.observe import metrics as m
from redrive.observe.metrics import Metric, Scope, Type

SOURCE = {"type": "prometheus", "uid": "${source}"}
RATE = "[$__rate_interval]"
CHOSEN = (m.CONNECTION, "queue", "kind")  # labels that somebody who looks may choose by
EACH = (m.CONNECTION,)  # figures of the fleet are those of one connection
QUANTILES = (0.5, 0.95, 0.99)
WIDTH, HEIGHT = 24, 8
UNITS = {"seconds": "s", "bytes": "bytes", "ratio": "percentunit"}

SECTIONS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("Queues", (m.TASKS, m.OLDEST, m.ENQUEUED, m.COMPLETED, m.CANCELLED, m.OVERDUE, m.PAUSED, m.KIND_PAUSED)),
    ("Circuits", (m.CIRCUIT_AGE, m.CIRCUIT_OPENED, m.KIND_WAITS)),
    ("Attempts", (m.CLAIMED, m.ATTEMPTS, m.WAIT, m.RUN, m.FAILURES, m.BATCHES)),
    ("Failures", (m.FAILED_BY_CODE, m.FAILED_BY_TYPE, m.FAILED_OPEN, m.CAUSES, m.LETTERS)),
    (
        "Workers",
        (
            *(m.WORKERS, m.SILENT, m.FLEET_SLOTS, m.FLEET_USED, m.SLOTS, m.SLOTS_USED, m.STOPPING, m.RESTARTS, m.INFO),
            *(m.LEASES_LOST, m.LATE_COMMITS, m.LATE, m.RECOVERED, m.EXPIRED, m.ABANDONED, m.LAG, m.BLOCKED),
            *(m.HOOKS_DROPPED, m.HOOKS_FAILED),
        ),
    ),
    ("Store", (m.CALLS, m.ERRORS, m.RECONNECTS, m.CONTACT, m.LISTENER, m.FLEET_UP, m.HORIZON)),
    (
        "Operating",
        (
            *(m.OPERATIONS, m.APPROVALS, m.SCHEDULES_LATE, m.LATENESS, m.UNSEALED, m.UNSEALED_AGE, m.CHAIN),
            *(m.FIRING, m.EVALUATED, m.BURN, m.BUDGET),
        ),
    ),
)


@dataclass(slots=True, frozen=True)
class Panel:
    """A drawing of one or more expressions, each with what its lines are called."""

    title: str
    lines: tuple[tuple[str, str], ...]
    unit: str = "short"
    type: str = "timeseries"
    help: str = ""
    size: tuple[int, int] = (8, HEIGHT)


def dashboard(table: Sequence[Metric] = m.TABLE) -> dict[str, Any]:
    """Returns the dashboard as Grafana imports it."""
    return {
        "uid": "redrive",
        "title": "redrive",
        "tags": ["redrive"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": list(_placed(sections(table))),
    }


def sections(table: Sequence[Metric]) -> list[tuple[str, list[Panel]]]:
    """Returns the rows of the dashboard; metrics of features are in one of their own."""
    known = {metric.name for _, own in SECTIONS for metric in own}
    rows = [(title, [panel_of(metric) for metric in own]) for title, own in SECTIONS]
    others = [panel_of(metric) for metric in table if metric.name not in known]
    return [("First", list(_first())), *rows, *([("Features", others)] if others else [])]


def _first() -> Iterator[Panel]:
    """What tells at a glance whether all is well."""
    queued, failed = _once(m.TASKS, CHOSEN, state="queued"), _once(m.TASKS, CHOSEN, state="failed")
    yield _stat("Waiting", f"sum({queued})")
    yield _stat("Oldest", f"max({_once(m.OLDEST, CHOSEN)})", "s")
    yield _stat("Failed", f"sum({failed})")
    yield _stat("Completed per second", f"sum({_rate(m.COMPLETED, CHOSEN)})")
    used, slots = _once(m.FLEET_USED, EACH), _once(m.FLEET_SLOTS, EACH)
    yield _stat("Slots used", f"sum({used}) / sum({slots})", "percentunit")
    yield _stat("Silent workers", f"sum({_once(m.SILENT, EACH)})")
    share = f"{_rate(m.FAILURES, ('kind',))} / {_rate(m.CLAIMED, ('kind',))}"
    yield Panel("Share of attempts that fail", ((share, "{{kind}}"),), "percentunit", size=(12, HEIGHT))
    yield Panel("Waiting by queue", ((f"sum by (queue) ({queued})", "{{queue}}"),), size=(12, HEIGHT))


def _stat(title: str, expression: str, unit: str = "short") -> Panel:
    return Panel(title, ((expression, ""),), unit, "stat", size=(4, 4))


def panel_of(metric: Metric) -> Panel:
    """Returns the panel of a metric, by its type and by whose figure it is."""
    title = metric.name.removeprefix("redrive_").removeprefix("fleet_").removesuffix("_total").replace("_", " ")
    lines, unit = _lines(metric), _unit(metric)
    whose = "" if metric.scope is Scope.PROCESS else ", fleet"
    per = " per second" if metric.type is Type.COUNTER else ""
    return Panel(f"{title[0].upper()}{title[1:]}{per}{whose}", tuple(lines), unit, help=metric.help)


def _lines(metric: Metric) -> list[tuple[str, str]]:
    if metric.type is Type.HISTOGRAM:
        by = metric.labels[-1:]
        name = f"{{{{{by[0]}}}}} " if by else ""
        return [(_quantile(metric, q, by), f"{name}p{q * 100:g}") for q in QUANTILES]
    if metric.type is Type.COUNTER:
        by = (*metric.labels, *EACH) if metric.scope is Scope.FLEET else metric.labels
        return [(_rate(metric, by), _legend(by))]
    if metric.name.endswith("_timestamp_seconds"):
        by = EACH if metric.scope is Scope.FLEET else (m.WORKER,)
        return [(f"time() - {_once(metric, by)}", _legend(by))]
    if metric.scope is Scope.FLEET:
        by = (*metric.labels, *EACH)
        return [(_once(metric, by), _legend(by))]
    by = metric.labels or (m.WORKER,)
    return [(f"sum by ({', '.join(by)}) ({metric.name}{_chosen(metric)})", _legend(by))]


def _unit(metric: Metric) -> str:
    last = metric.name.removesuffix("_total").rpartition("_")[2]
    if metric.type is Type.COUNTER:
        return "cps"
    return UNITS.get(last, "short")


def _rate(metric: Metric, by: Sequence[str]) -> str:
    """Returns the rate of a counter: those of processes are added up, one of the fleet is the same from everybody."""
    together = "max" if metric.scope is Scope.FLEET else "sum"
    return f"{together}{_by(metric, by)} (rate({metric.name}{_chosen(metric)}{RATE}))"


def _once(metric: Metric, by: Sequence[str], **only: str) -> str:
    return f"max{_by(metric, by)} ({metric.name}{_chosen(metric, **only)})"


def _quantile(metric: Metric, q: float, by: Sequence[str]) -> str:
    labels = ", ".join(("le", *by))
    return f"histogram_quantile({q}, sum by ({labels}) (rate({metric.name}_bucket{_chosen(metric)}{RATE})))"


def _by(metric: Metric, labels: Sequence[str]) -> str:
    for label in labels:
        if label not in metric.all_labels:
            raise ValueError(f"{metric.name} has no label {label!r}")
    return f" by ({', '.join(labels)})" if labels else ""


def _chosen(metric: Metric, **only: str) -> str:
    """Returns the selector of a metric: by what was chosen above, as far as it has these labels, and by ``only``."""
    _by(metric, list(only))
    parts = [f'{label}=~"${label}"' for label in CHOSEN if label in metric.all_labels]
    parts += [f'{label}="{value}"' for label, value in only.items()]
    return "{" + ", ".join(parts) + "}" if parts else ""


def _legend(labels: Iterable[str]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)


def _variables() -> list[dict[str, Any]]:
    connections = f"label_values({m.FLEET_UP.name}, connection)"
    queues = f'label_values({m.TASKS.name}{{connection=~"$connection"}}, queue)'
    kinds = f'label_values({m.TASKS.name}{{connection=~"$connection", queue=~"$queue"}}, kind)'
    chosen = ((m.CONNECTION, connections), ("queue", queues), ("kind", kinds))
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}
    return [source, *(_variable(name, query) for name, query in chosen)]


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def _placed(rows: Iterable[tuple[str, Sequence[Panel]]]) -> Iterator[dict[str, Any]]:
    """Returns rows and panels with their places, from left to right."""
    number, y = 0, 0
    for title, panels in rows:
        number += 1
        yield {"id": number, "type": "row", "title": title, "panels": [], "gridPos": _at(0, y, WIDTH, 1)}
        x, y, tallest = 0, y + 1, 0
        for panel in panels:
            number += 1
            width, height = panel.size
            if x + width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            yield _drawn(panel, number, _at(x, y, width, height))
            x, tallest = x + width, max(tallest, height)
        y += tallest


def _at(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


def _drawn(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.type,
        "title": panel.title,
        "description": panel.help,
        "gridPos": place,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": _options(panel),
        "targets": [
            {"refId": chr(ord("A") + nth), "datasource": SOURCE, "expr": expr, "legendFormat": legend or "__auto"}
            for nth, (expr, legend) in enumerate(panel.lines)
        ],
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.type == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
