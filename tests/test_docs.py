"""What the README and the guide show works as it stands."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

from discreet import cli, registry
from discreet.experiments.config import RunConfig
from discreet.experiments.sweep import Sweep

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.S)


def test_the_readmes_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(ROOT / "README.md", "python")
    exec(code.replace("20_000", "300").replace("seeds=10", "seeds=3"), {})
    assert (tmp_path / "regret.png").exists()


def test_the_guides_first_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = blocks(ROOT / "docs" / "guide.md", "python")[0]
    exec(code.replace("20_000", "300").replace("seeds=8", "seeds=2"), {})
    assert "Joint differential privacy" in capsys.readouterr().out


def test_the_guides_session_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (block for block in blocks(ROOT / "docs" / "guide.md", "python") if "session.submit" in block)
    exec(code, {})
    assert capsys.readouterr().out.startswith("Local differential privacy")


@pytest.mark.parametrize("page", ["messages.md", "linear-sums.md"])
def test_what_pages_show_of_devices_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (block for block in blocks(ROOT / "docs" / page, "python") if "session.submit" in block)
    exec(code, {})
    shown = capsys.readouterr().out
    assert "one person's whole trajectory of one episode" in shown
    if page == "messages.md":
        assert shown.startswith("pure local differential privacy, epsilon = 4.")
        assert shown.splitlines()[1].startswith("reports 1 True ")
        assert shown.splitlines()[2:] == ["replayed", "1"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_commands_exist(page: Path) -> None:
    known = {(command.name or "") for command in cli.app.registered_commands}
    shown = re.findall(r"^discreet ([a-z-]+)", page.read_text(encoding="utf-8"), re.M)
    assert set(shown) <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_options_exist(page: Path) -> None:
    """Of every command that a page shows, in blocks or within a line."""
    commands: Any = vars(typer.main.get_command(cli.app))["commands"]
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for name, rest in re.findall(r"(?:^|`)discreet ([a-z-]+)([^\n`#]*)", text, re.M):
        known = {option for one in commands[name].params for option in (*one.opts, *one.secondary_opts)}
        shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest))
        assert shown <= known | {"--help"}, (name, rest)


def test_shown_configurations_are_valid() -> None:
    tables = [tomllib.loads(text) for text in blocks(ROOT / "docs" / "guide.md", "toml")]
    runs = [RunConfig.from_table(table) for table in tables if "learner" in table]
    assert len(runs) == 1
    assert registry.resolved(runs[0]).options == {"learner.bonus_scale": 0.1}
    showcase = Sweep.from_toml(ROOT / "docs" / "examples" / "showcase.toml").resolved(registry.resolved)
    assert {run.privatizer for run in showcase.runs} == {"none", "central", "local"}
    papers = [run for run in showcase.runs if run.learner != "noise-aware"]
    assert all(run.options["learner.bonus_scale"] == 0.1 for run in papers)  # one tuning for all of them
    ours = [run.options for run in showcase.runs if run.learner == "noise-aware"]
    assert all(options in ({}, {"learner.explore": "returns"}) for options in ours)  # its defaults
    assert all(run.seeds >= 6 for run in showcase.runs)  # enough for an interval of the median


def test_no_page_names_this_machine() -> None:
    for page in [*PAGES, ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "pyproject.toml"]:
        assert not re.search(r"/(root|tmp|work|home)/", page.read_text(encoding="utf-8")), page.name
