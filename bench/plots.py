"""Plots of a run as small SVG files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.labels import label
from bench.targets import dig

Results = dict[str, Any]
OURS, THEIRS, GREY = "#1b6ca8", "#c9a227", "#999999"


def draw(results: Results, directory: Path) -> list[str]:
    """Write what there is data for; answers the names. Without matplotlib there are no plots."""
    try:
        import matplotlib as mpl
    except ImportError:
        return []
    mpl.use("svg")
    # Text stays text and ids stay the same: small files, and small differences between two runs.
    mpl.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "redrive",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    made = {"drain": _drain, "horizon": _horizon, "growth": _growth}
    return [name for name, plot in made.items() if plot(results, directory / f"{name}.svg")]


def _figure(height: float) -> Any:
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(7, height), layout="constrained")


def _save(figure: Any, path: Path) -> bool:
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    return True


def _drain(results: Results, path: Path) -> bool:
    rates = {
        name: [dig(entry, "drain", processes, "per_s") for processes in ("1", "2")]
        for name, entry in results["peers"].items()
    }
    rates = {name: found for name, found in rates.items() if found[0]}
    if not rates:
        return False
    names = sorted(rates, key=lambda name: rates[name][0])
    figure, axes = _figure(0.6 + 0.38 * len(names))
    for place, name in enumerate(names):
        color = OURS if name.startswith("redrive") else THEIRS
        for offset, rate, shade in ((-0.19, rates[name][0], 1.0), (0.19, rates[name][1], 0.55)):
            if rate:
                axes.barh(place - offset, rate, 0.36, color=color, alpha=shade)
                axes.text(rate, place - offset, f" {rate:,.0f}", va="center", fontsize=7)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("no-op tasks drained per second; upper bar 1 worker process, lower bar 2")
    return _save(figure, path)


def _horizon(results: Results, path: Path) -> bool:
    runs = {name: found for name, found in results["horizon"].items() if found.get("pinned")}
    if not runs:
        return False
    figure, axes = _figure(3)
    for name, found in runs.items():
        color = OURS if name.startswith("redrive") else THEIRS
        for kind, style in (("clean", ":"), ("pinned", "-")):
            times = [(index + 1) * found["window_s"] for index in range(len(found[kind]))]
            axes.plot(times, found[kind], style, color=color, marker=".", label=f"{name}, {kind}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds of full load")
    axes.set_ylabel("tasks per second")
    axes.legend(frameon=False)
    return _save(figure, path)


def _growth(results: Results, path: Path) -> bool:
    cases = [case for case in results["growth"].get("redrive-postgres", ()) if "ratio" in case]
    if not cases:
        return False
    figure, axes = _figure(0.6 + 0.28 * len(cases))
    axes.barh([label(case) for case in cases], [case["ratio"] * 100 for case in cases], color=OURS)
    axes.axvline(90, color=GREY, linestyle="--", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("drain rate as % of the plain rate; the line is the target for what waits or is done")
    return _save(figure, path)
