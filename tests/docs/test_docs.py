"""What pages show exists: links, commands, options, public names. ``make test-docs`` runs it, too."""

import ast
import inspect
import re
import runpy
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import ALL
from public import BY_NAME, PUBLIC

import discreet as dr
from discreet.cli.renamed import COMMANDS
from discreet.core import checks
from discreet.experiments import build_run
from discreet.experiments.run_config import RunConfig
from discreet.experiments.sweep import Sweep
from discreet.utils.renamed import renamed

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
PAGES += [*sorted((ROOT / "papers").glob("**/README.md")), ROOT / "benchmarks" / "leaderboard" / "README.md"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_commands_exist(page: Path) -> None:
    shown = re.findall(r"^discreet ([a-z-]+)", page.read_text(encoding="utf-8"), re.M)
    assert set(shown) <= set(ALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_options_exist(page: Path) -> None:
    """Of every command that a page shows, in blocks or within a line."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for name, rest in re.findall(r"(?:^|`)discreet ([a-z-]+)([^\n`#]*)", text, re.M):
        command = ALL[name]
        inner = vars(command).get("commands", {}).get(rest.split()[0]) if rest.split() else None
        known = {option for one in (inner or command).params for option in (*one.opts, *one.secondary_opts)}
        shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest))
        assert shown <= known | {"--help"}, (name, rest)


def test_the_upgrade_page_agrees_with_the_tables_of_old_names() -> None:
    text = (ROOT / "docs" / "upgrade-0.3.md").read_text(encoding="utf-8")
    rows = [[re.findall(r"`([^`]+)`", cell) for cell in row.split("|")] for row in text.splitlines()]
    names = [(row[1], row[2]) for row in rows if len(row) == 4 and row[1]]
    assert len(names) == 8
    for old, new in names:
        found = [(renamed(one) or "").partition(": ")[2].replace("discreet.", "dr.") for one in old]
        assert ", ".join(found).replace("dr.pipeline.learn", "discreet.pipeline.learn") == ", ".join(new)
    commands = {old.split()[0] for row in rows if len(row) == 5 for old in row[2] if old[0] != "-"}
    assert commands - {"learn"} == set(COMMANDS)


def test_shown_configurations_are_valid() -> None:
    tables = [tomllib.loads(text) for text in blocks(ROOT / "docs" / "simulate.md", "toml")]
    runs = [RunConfig.from_table(table) for table in tables if "learner" in table]
    assert len(runs) == 1
    assert build_run.resolved(runs[0]).options == {"learner.bonus_scale": 0.1}
    showcase = Sweep.from_toml(ROOT / "docs" / "examples" / "showcase.toml").resolved(build_run.resolved)
    assert {run.privatizer for run in showcase.runs} == {"none", "central", "local"}
    papers = [run for run in showcase.runs if run.learner != "noise-aware"]
    assert all(run.options["learner.bonus_scale"] == 0.1 for run in papers)  # one tuning for all of them
    ours = [run.options for run in showcase.runs if run.learner == "noise-aware"]
    assert all(options in ({}, {"learner.explore": "returns"}) for options in ours)  # its defaults
    assert all(run.seeds >= 6 for run in showcase.runs)  # enough for an interval of the median


def test_no_page_names_this_machine() -> None:
    for page in [*PAGES, ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "pyproject.toml"]:
        assert not re.search(r"/(root|tmp|work|home)/", page.read_text(encoding="utf-8")), page.name


# ------------------------------------------------------------------------------------- reference
@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_says_what_it_is(name: str) -> None:
    """A docstring of its own that names each argument, and that there are errors: a base's may do so, too."""
    thing = PUBLIC[name]
    text = inspect.cleandoc((vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__) or "")
    assert len(text) > 15
    assert not text.startswith(f"{thing.__name__}("), "this is the signature that dataclasses make"
    assert unnamed(thing, text) == set()
    if any(raises_value_error(one) for one in made_by(thing)):
        ours = [base for base in getattr(thing, "__mro__", ()) if base.__module__.startswith("discreet.")]
        assert SAYS_ERROR.search(text + "".join(vars(base).get("__doc__") or "" for base in ours))


def unnamed(thing: Any, text: str) -> set[str]:
    """Arguments that neither the text of a public name nor a docstring of its bases names."""
    if inspect.isclass(thing):
        if getattr(thing, "_is_protocol", False) or issubclass(thing, BaseException):
            return set()  # made by nobody: its methods are looked at below
        ours = [base for base in thing.__mro__[1:] if base.__module__.startswith("discreet.")]
        text += "".join(vars(base).get("__doc__") or "" for base in ours)
    elif not inspect.isfunction(thing):
        return set()
    return {one for one in inspect.signature(thing).parameters if not re.search(rf"\b{one}\b", text)}


def test_an_argument_that_no_docstring_names_is_told() -> None:
    class Base:
        """low : at least 0."""

    class Range(Base):
        """From low to high."""

        def __init__(self, low: float, high: float, step: float) -> None: ...

    Base.__module__ = "discreet.made_up"
    assert unnamed(Range, "A range, from low.") == {"high", "step"}
    assert unnamed(Range, "high, step : above 0.") == set()


PROTOCOLS = [
    "Session",
    "Mechanism",
    "Privatizer",
    "Learner",
    "OfflineLearner",
    "Encoder",
    "NoiseDistribution",
]
SAYS_ERROR = re.compile(r"[Rr]aise|[A-Z]\w+Error|[Rr]efuse")


def methods(thing: type) -> dict[str, Any]:
    """Functions that a class of ours has under a public name, its bases' among them."""
    found: dict[str, Any] = {}
    for base in reversed([base for base in thing.__mro__ if base.__module__.startswith("discreet.")]):
        for name, value in vars(base).items():
            function = getattr(value, "__func__", value)
            if inspect.isfunction(function) and (not name.startswith("_") or name == "__call__"):
                found[name] = function
    return found


def said_of(thing: type, method: str) -> str:
    """What a reader finds of a method: here, in what it overrides, and in the protocol that it is part of."""
    found = [vars(base)[method].__doc__ or "" for base in thing.__mro__ if method in vars(base)]
    parts = [vars(BY_NAME[name]).get(method) for name in PROTOCOLS]
    return "\n".join([*found, *(inspect.getdoc(part) or "" for part in parts if callable(part))])


def raises_value_error(function: Any) -> bool:
    """Whether its own lines do, by ``raise`` or by a check of an argument."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    made = [
        one.exc.func for one in ast.walk(tree) if isinstance(one, ast.Raise) and isinstance(one.exc, ast.Call)
    ]
    checked = [one.func for one in ast.walk(tree) if isinstance(one, ast.Call)]
    return "ValueError" in map(ast.unparse, made) or any(
        ast.unparse(one).startswith("checks.") for one in checked
    )


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isclass(PUBLIC[name])])
def test_every_method_of_a_public_class_names_its_arguments_and_errors(name: str) -> None:
    thing = PUBLIC[name]
    ours = [base for base in thing.__mro__ if base.__module__.startswith("discreet.")]
    about = "".join(vars(base).get("__doc__") or "" for base in ours)
    for method, function in methods(thing).items():
        text = said_of(thing, method)
        assert text.strip(), f"{method}: says nothing"
        left = unnamed(function, text + about) - {"self", "cls"}
        assert left == set(), method
        assert SAYS_ERROR.search(text) or not raises_value_error(function), f"{method}: which errors?"


def made_by(thing: Any) -> list[Any]:
    """The functions in which arguments of a public name are checked: itself, or what makes an object."""
    if inspect.isfunction(thing):
        return [thing]
    ours = [base for base in getattr(thing, "__mro__", ()) if base.__module__.startswith("discreet.")]
    makers = [vars(base).get(maker) for base in ours for maker in ("__init__", "__post_init__")]
    written = [one for one in makers if inspect.isfunction(one)]
    return [one for one in written if one.__code__.co_filename != "<string>"]  # not by dataclasses


def test_a_method_that_is_silent_of_its_errors_is_told() -> None:
    def scaled(factor: float) -> None:
        """By the factor."""
        checks.positive("factor", factor)

    def shifted(by: float) -> None:
        """By so much."""
        raise ValueError(by)

    def told(by: float) -> float:
        """By so much."""
        return by

    assert [raises_value_error(one) for one in (scaled, shifted, told)] == [True, True, False]


def test_every_public_name_has_its_place_in_the_reference() -> None:
    """docs/reference.py writes a page of each name, under the stub's headings or its package."""
    groups = runpy.run_path(str(ROOT / "docs" / "reference.py"))["groups"]()
    listed = [name for names in groups.values() for name in names]
    assert sorted(listed) == sorted(f"discreet.{name}" for name in PUBLIC)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_method_of_a_public_protocol_is_explained(name: str) -> None:
    protocol = BY_NAME[name]
    own = {
        key: value for key, value in vars(protocol).items() if not key.startswith("_") or key == "__call__"
    }
    methods = {key for key, value in own.items() if callable(value) or isinstance(value, property)}
    assert methods
    assert {key for key in methods if not inspect.getdoc(own[key])} == set()
    for key in methods:
        if callable(own[key]):
            arguments = {*inspect.signature(own[key]).parameters} - {"self"}
            text = inspect.getdoc(own[key]) or ""
            assert {one for one in arguments if not re.search(rf"\b{one}\b", text)} == set(), key


@pytest.mark.parametrize(
    ("script", "name"), [("own_vector", "QLearning"), ("own_policy_gradient", "PolicyGradient")]
)
def test_learners_of_the_gallery_play_admissible_actions_only(script: str, name: str) -> None:
    """Their scripts have an environment without a mask; who copies them may have one."""
    text = (ROOT / "docs" / "gallery" / f"{script}.py").read_text("utf-8").split("mdp = dr.make")[0]
    scope: dict[str, Any] = {"__name__": script}
    exec(compile(text.replace("import shown\n", ""), script, "exec"), scope)
    learner = scope[name](batch=50)
    mdp = masked_mdp()
    for privatizer in (dr.NoPrivacy(), dr.Central(epsilon=1.0, delta=1e-6, noise="gaussian")):
        found = dr.simulate(mdp, learner, privatizer, episodes=200, seeds=1, workers=1)
        assert found.regret.shape[0] == 1
        assert (found.guarantee.epsilon is None) == isinstance(privatizer, dr.NoPrivacy)


def masked_mdp() -> Any:
    """Two actions in the first state, one in the others."""
    rng = np.random.default_rng(1)
    mask = np.array([[True, True], [True, False], [False, True]])
    transitions = rng.dirichlet(np.ones(3), size=(2, 3, 2))
    return dr.TabularMDP(transitions, rng.random((2, 3, 2)), np.full(3, 1 / 3), mask=mask)
