"""redrive without its kit: what is part of it is listed, and says what to install; and the two wheels as built."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import redrive_kit
from redrive.cli.table import KIT_COMMANDS
from redrive.errors import KitNeeded
from redrive.testing.provider import simulated_provider
from redrive.version import __version__ as VERSION

ROOT = Path(__file__).parents[2]
INSTALL = "pip install redrive-kit"
MOVED = {
    "redrive.examples.shots": "redrive_kit.examples",
    "redrive.testing.conformance": "redrive_kit.conformance",
    "redrive.testing.conformance.harness": "redrive_kit.conformance",
    "redrive.outbox.simulator": "redrive_kit.simulators.search",
}


@pytest.fixture
def no_kit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where only redrive is installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "redrive_kit"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redrive_kit", None)
    monkeypatch.delitem(sys.modules, "redrive.outbox.commands", raising=False)  # it has asked already
    yield
    sys.modules.pop("redrive.outbox.commands", None)


CALLS = (
    ["lab"],
    ["lab", "1", "--quick"],
    ["lab", "--help"],
    ["soak", "--minutes", "1"],
    ["simulate", "provider", "--port", "0"],
    ["outbox", "load", "--total", "3"],
    ["outbox", "load", "--help"],
)


@pytest.mark.usefixtures("no_kit")
@pytest.mark.parametrize("arguments", CALLS, ids=" ".join)
def test_a_command_of_the_kit_says_what_to_install(redrive, arguments: list[str]) -> None:
    said = redrive(*arguments)
    assert said.code == 2 and said.out == ""
    assert "is part of redrive-kit, which is not installed" in said.err and INSTALL in said.err
    assert redrive(*arguments, "--json").error["code"] == "KIT_NEEDED"


@pytest.mark.usefixtures("no_kit")
def test_without_the_kit_its_commands_are_listed_and_all_others_work(redrive) -> None:
    page = redrive("--help").out
    assert [name for name in KIT_COMMANDS if f"│ {name} " not in page] == []
    assert "load" in redrive("outbox", "--help").out
    assert redrive("migrate").code == redrive("outbox", "list").code == 0


def test_a_kit_of_another_version_is_not_used(redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_kit, "__version__", "0.0.9")
    said = redrive("lab")
    assert said.code == 2 and "0.0.9 of it is installed" in said.err
    assert f"pip install redrive-kit=={VERSION}" in said.err


@pytest.mark.parametrize("name", MOVED)
def test_the_name_that_was_says_where_it_went(redrive, name: str) -> None:
    with pytest.raises(ImportError, match=f"is {MOVED[name]} now") as raised:
        importlib.import_module(name)
    assert INSTALL in str(raised.value)


def test_an_application_by_its_former_name_is_told_where_it_went(redrive) -> None:
    said = redrive("stats", "--app", "redrive.examples.shots:app")
    assert said.code == 2 and "redrive.examples is redrive_kit.examples now" in said.err and INSTALL in said.err


@pytest.mark.usefixtures("no_kit")
def test_a_test_that_wants_a_provider_is_told_what_to_install() -> None:
    with pytest.raises(KitNeeded, match="a simulated provider is part of redrive-kit"), simulated_provider():
        pass


def test_both_have_one_version() -> None:
    project = tomllib.loads((ROOT / "kit/pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["labs"]]
    assert project["version"] == VERSION == redrive_kit.__version__
    assert [one.partition("==")[2] for one in needed] == [VERSION] * len(needed)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both wheels, each unpacked into a folder of its own."""
    found, dist = {}, tmp_path_factory.mktemp("dist")
    for name, source in (("redrive", ROOT), ("redrive_kit", ROOT / "kit")):
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(dist)]
        subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=120)
        found[name] = dist / name
        zipfile.ZipFile(dist / f"{name}-{VERSION}-py3-none-any.whl").extractall(found[name])
    return found


def test_each_wheel_has_its_own_files_and_all_of_them(wheels: dict[str, Path]) -> None:
    for name, source in (("redrive", ROOT / "src/redrive"), ("redrive_kit", ROOT / "kit/redrive_kit")):
        there = {file.relative_to(source) for file in source.rglob("*") if file.is_file() and file.suffix != ".pyc"}
        packed = wheels[name] / name
        assert {file.relative_to(packed) for file in packed.rglob("*") if file.is_file()} == there
        assert {one.name.partition("-")[0] for one in wheels[name].iterdir()} == {name}


def test_an_installation_of_the_wheels(wheels: dict[str, Path], tmp_path: Path) -> None:
    """Without ``site`` nothing of this checkout is found but the wheels, and what they depend on."""

    def run(folders: list[Path], *arguments: str) -> tuple[int, str]:
        path = os.pathsep.join([*map(str, folders), sysconfig.get_path("purelib")])
        command = [sys.executable, "-S", "-m", "redrive.cli", *arguments]
        environ = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    for arguments in (["lab"], ["outbox", "load", "--help"]):
        code, said = run([wheels["redrive"]], *arguments)
        assert code == 2 and INSTALL in said
        code, said = run([*wheels.values()], *arguments)
        assert code == 0 and INSTALL not in said, said
