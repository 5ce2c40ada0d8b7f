"""``import discreet as dr`` is enough: for the pages, for type checkers, and for who makes a mistake."""

import ast
import importlib
import os
import re
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import numpy as np
import pytest
from public import BY_NAME, PUBLIC

import discreet as dr
from discreet import registry
from discreet.utils import renamed as renaming
from discreet.utils.short_repr import LINES, WIDTH

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (ROOT / "docs").glob("*.md"))
JOBS = ["simulate.md", "offline.md", "linear.md", "ledger.md", "statement.md", "audit.md"]


# ----------------------------------------------------------------------------------- one import
def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)


def imported(code: str) -> list[str]:
    """Modules of ours that a piece of code imports, but for ``import discreet as dr``."""
    found: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "discreet":
            found.append(f"from {node.module} import {', '.join(name.name for name in node.names)}")
        if isinstance(node, ast.Import):
            ours = [one for one in node.names if one.name.split(".")[0] == "discreet"]
            found += [f"import {one.name}" for one in ours if (one.name, one.asname) != ("discreet", "dr")]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_import_nothing_deeper(page: Path) -> None:
    assert [line for code in blocks(page) for line in imported(code)] == []


def test_the_examples_import_nothing_deeper() -> None:
    examples = sorted((ROOT / "docs" / "examples").glob("*.py"))
    assert examples
    assert [line for path in examples for line in imported(path.read_text(encoding="utf-8"))] == []


def test_the_walk_finds_deeper_imports() -> None:
    assert imported("import discreet as dr\nimport numpy") == []
    deeper = "from discreet.ledger.ledger import Ledger\ndef f():\n    import discreet.envs\n"
    deeper += "from discreet import make"
    assert imported(deeper) == [
        "from discreet.ledger.ledger import Ledger",
        "from discreet import make",
        "import discreet.envs",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_that_a_page_uses_is_public(page: Path) -> None:
    used = set(re.findall(r"\bdr\.((?:[a-z]+\.)*[A-Za-z_]\w*)", page.read_text(encoding="utf-8")))
    assert {name for name in used if not is_public(name)} == set()
    assert used or page.name not in JOBS


def is_public(name: str) -> bool:
    """A name, a package, or an attribute of either."""
    found: object = dr
    for part in name.split("."):
        if isinstance(found, types.ModuleType) and part not in found.__all__:
            return False
        found = getattr(found, part, None)
        if found is None:
            return False
    return True


def test_names_that_are_not_public_are_found() -> None:
    assert all(
        map(is_public, ("make", "learners", "learners.UCBVI", "learners.ope.evaluate", "Ledger.reserve"))
    )
    assert not any(map(is_public, ("UCBVI", "learners.nothing", "registry", "envs.mdp")))


def test_every_name_of_the_command_line_is_public() -> None:
    parts = [one for one in registry.entries() if one.plugin is None and one.kind != "environment"]
    assert len(parts) > 25
    missing = {one.name for one in parts if BY_NAME.get(one.factory().__name__) is not one.factory()}
    assert missing == set()


def test_jobs_by_their_names() -> None:
    """What the guide is about, online and stored."""
    jobs = {
        "make",
        "TabularMDP",
        "LinearMDP",
        "LinearMixtureMDP",
        "Features",
        "MixtureFeatures",
        "simulate",
        "learn",
        "learn_offline",
        "learn_linear",
        "replan",
        "replan_linear",
        "verify",
        "estimate_release",
        "estimate_run",
        "Ledger",
        "audit_privatizer",
        "restore",
        "open_source",
        "read_schema",
        "session_of",
        "CountMechanism",
        "LinearMechanism",
        "Exact",
        "Prefixes",
        "Batches",
        "OnDevice",
        "Reported",
        "Stated",
        "Budget",
        "greedy_action",
    }
    assert jobs <= set(BY_NAME)
    assert len(BY_NAME) == len(PUBLIC)
    assert len([name for name in PUBLIC if "." not in name]) <= 60


def test_a_mechanism_is_built_and_run_by_public_names() -> None:
    query = dr.mechanisms.CountQuery(dr.make("riverswim", horizon=3).layout)
    schedule = dr.Schedule(8, np.array([0, 4]))
    scales = np.full(len(list(query.row_families)), 20.0)
    built = dr.mechanisms.CountMechanism(
        query, schedule, "seeded", dr.mechanisms.Batches(), noise=dr.mechanisms.Laplace(), scales=scales
    )
    loss = query.sensitivity("l1", dict.fromkeys(query.row_families, 1 / 20.0))
    assert built.guarantee.epsilon == pytest.approx(loss)
    with dr.mechanisms.session_of(built, dr.Seeded(0)) as session:
        assert session.guarantee == built.guarantee


# ------------------------------------------------------------------------------- type checkers
MISTAKES = """
import discreet as dr

mdp = dr.make("riverswim")
data = dr.learners.SimulatedDataset(mdp, dr.envs.uniform_policy(mdp), 100)
dr.simulate(mdp, dr.Central(epsilon=1.0), dr.DPUCBVI(), 100)  # wrong
dr.simulate(mdp, dr.DPUCBVI(), dr.DPUCBVI(), 100)  # wrong
dr.simulate(mdp, dr.DPAPVI(), dr.Central(epsilon=1.0), 100)  # wrong
dr.simulate(dr.DPUCBVI(), mdp, dr.Central(epsilon=1.0), 100)  # wrong
dr.learn_offline(data, dr.Central(epsilon=1.0), dr.DPAPVI(), dr.Seeded(0))  # wrong
dr.audit_privatizer(dr.DPUCBVI())  # wrong
dr.Central(1.0)  # wrong
dr.Central(eps=1)  # wrong
dr.Local(epsilon="1")  # wrong
dr.nothing  # wrong
dr.learn_offline(data, dr.DPAPVI(), dr.Central(epsilon=1.0), dr.Seeded(0))
dr.audit_privatizer(dr.Local(epsilon=1.0), dr.DPUCBVI())
mechanism = dr.Central(mu=1.0).mechanism(dr.mechanisms.CountQuery(mdp.layout), dr.Schedule(5), dr.Secure())
dr.mechanisms.session_of(mechanism, dr.Secure()).close()
"""


def test_a_type_checker_finds_the_mistakes_and_nothing_else(tmp_path: Path) -> None:
    def name(one: registry.RegistryEntry) -> str:
        return next(f"dr.{full}" for full, thing in PUBLIC.items() if thing is one.factory())

    budget = {"none": "", "central": "epsilon=1.0", "local": "epsilon=1.0", "shuffle": "epsilon=1.0"}
    right = [f"dr.simulate(mdp, {name(one)}(), dr.NoPrivacy(), 9)" for one in registry.entries("learner")]
    right += [
        f"dr.simulate(mdp, dr.learners.UCBVI(), {name(one)}({budget[one.name]}), 9)"
        for one in registry.entries("privatizer")
        if one.plugin is None
    ]
    file = tmp_path / "mistakes.py"
    file.write_text(MISTAKES + "\n".join(right) + "\n", encoding="utf-8")
    wrong = {i for i, line in enumerate(file.read_text("utf-8").splitlines(), 1) if line.endswith("# wrong")}
    assert len(wrong) == 10
    check = [sys.executable, "-m", "mypy", str(file)]  # with what `make types` has kept of the library
    check[3:3] = ["--config-file", str(ROOT / "pyproject.toml")]
    env = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    out = subprocess.run(check, capture_output=True, text=True, cwd=ROOT, env=env, check=False).stdout
    found = {int(line) for line in re.findall(r"mistakes\.py:(\d+): error", out)}
    assert found == wrong, out
    assert out.count(": error:") == len(re.findall(r"mistakes\.py:\d+: error", out)), out


# -------------------------------------------------------------------------------- at run time
def simulate(mdp: object, learner: object, privatizer: object) -> None:
    dr.simulate(mdp, learner, privatizer, 50)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("learner", "privatizer", "words"),
    [
        (
            dr.Central(epsilon=1.0),
            dr.DPUCBVI(),
            r"^learner = Central\(.*\): must be a learner, such as discreet.DPUCBVI\(\); this is a "
            r"privatizer: are learner and privatizer swapped\?$",
        ),
        (
            dr.DPUCBVI(),
            dr.learners.UCBVI(),
            r"^privatizer = UCBVI\(.*: must be a privatizer, such as .*Central\(epsilon=1.0\); this is "
            r"a learner: are learner and privatizer swapped\?$",
        ),
        (
            dr.DPAPVI(),
            dr.NoPrivacy(),
            r"is an offline learner: it learns from offline data \(learn_offline\)$",
        ),
        (dr.DPUCBVI, dr.NoPrivacy(), r"this is the class itself: call it, DPUCBVI\(\.\.\.\)$"),
        (dr.DPUCBVI(), None, r"^privatizer = None: must be a privatizer, such as .*Central\(epsilon=1.0\)$"),
    ],
)
def test_parts_in_the_wrong_place_are_named(learner: object, privatizer: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        simulate(dr.make("riverswim"), learner, privatizer)


def test_parts_in_the_wrong_place_are_named_by_the_other_jobs() -> None:
    mdp = dr.make("riverswim", horizon=2)
    data = dr.learners.SimulatedDataset(mdp, dr.envs.uniform_policy(mdp), 10)
    with pytest.raises(ValueError, match="must be an offline learner, .*this is a privatizer: are learner"):
        dr.learn_offline(data, dr.Central(epsilon=1.0), dr.DPAPVI(), dr.Seeded(0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"a learner: it learns from users who arrive \(simulate\)"):
        dr.learn_offline(data, dr.DPUCBVI(), dr.NoPrivacy(), dr.Seeded(0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="privatizer = DPUCBVI.*swapped"):
        dr.audit_privatizer(dr.DPUCBVI(), dr.Central(epsilon=1.0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^mdp = DPUCBVI\(.*: must be a TabularMDP"):
        simulate(dr.DPUCBVI(), mdp, dr.NoPrivacy())


# ------------------------------------------------------------------------------- on one screen
def fits(thing: object) -> None:
    text = repr(thing)
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, WIDTH) or [""]]
    assert len(lines) <= LINES, text
    assert " object at 0x" not in text, text


PRIVATIZERS = [
    dr.NoPrivacy(),
    dr.Central(epsilon=1.0),
    dr.Central(epsilon=1.0, delta=1e-6),
    dr.Central(epsilon=1.0, release="tree"),
    dr.Local(epsilon=1.0),
    dr.Local(epsilon=1.0, delta=1e-6, randomizer="gaussian"),
    dr.Shuffle(epsilon=1.0),
    dr.Shuffle(epsilon=1.0, randomizer="amplified"),
]


@pytest.mark.parametrize("privatizer", PRIVATIZERS, ids=lambda one: type(one).__name__)
def test_what_a_session_is_made_of_is_shown_on_a_screen(privatizer: dr.Privatizer) -> None:
    mdp = dr.make("riverswim", horizon=12)
    spec = dr.mechanisms.ProblemSpec(mdp.layout, 5000, known_rewards=mdp.rewards)
    learner = dr.DPUCBVI(replan_growth=1.2)
    query, schedule = learner.query(spec), learner.schedule(spec)
    mechanism = privatizer.mechanism(query, schedule, dr.Seeded(0))
    session = dr.mechanisms.session_of(mechanism, dr.Seeded(0))
    release = session.release()
    plan, state = learner.plan(learner.begin(spec, np.zeros(2, np.uint64)), release)
    trajectory = dr.envs.rollout(mdp, plan.policy, np.zeros(2, np.uint64), 0)
    for thing in (
        spec,
        learner,
        privatizer,
        query,
        schedule,
        mechanism,
        mechanism.guarantee,
        session,
        release,
        plan,
        state,
        trajectory,
        dr.mechanisms.Message(1, trajectory),
        session.begin(plan),
        dr.Trajectories(*np.zeros((3, 9, 9))),
        *release.estimates.values(),
        *mechanism.laws_at(int(schedule.release_times[-1])).values(),
    ):
        fits(thing)
    assert "users=0" in repr(session)
    session.close()
    assert repr(session).endswith("closed>")
    assert "array" not in repr(trajectory)  # a person's record is not printed by accident


def test_a_guarantee_of_many_mechanisms_is_shown_on_a_screen() -> None:
    mdp = dr.envs.synthetic_linear_mdp(seed=0)
    learner = dr.learners.DPVAPVI(rho=1.0)
    with learner.open(mdp.layout, mdp.features, dr.Seeded(0)) as session:
        assert len(session.guarantee.records[0].scales) > 30
        for thing in (mdp, mdp.features, learner, session, session.guarantee, session.records[0]):
            fits(thing)


def test_worlds_results_and_stored_things_are_shown_on_a_screen() -> None:
    mdp = dr.make("riverswim", horizon=12)
    data = dr.learners.SimulatedDataset(mdp, dr.envs.uniform_policy(mdp), 1000)
    privatizer = dr.Central(epsilon=1.0, delta=1e-6)
    learned = dr.learn_offline(data, dr.DPAPVI(), privatizer, dr.Seeded(0))
    query = dr.DPAPVI().query(dr.mechanisms.ProblemSpec(mdp.layout))
    release = dr.learners.make_release(data, query, dr.Schedule.one_shot(1000), privatizer, dr.Seeded(0))
    result = dr.simulate(mdp, dr.DPUCBVI(replan_growth=2.0), privatizer, 300, seeds=2, workers=1)
    setup = dr.experiments.Setup(dr.make("linear-mixture"), dr.learners.UCRLVTR(), privatizer, 100)
    session = setup.start(dr.Seeded(0))
    begun = dr.learners.UCRLVTR().begin(setup.spec, np.zeros(2, np.uint64))
    plan, state = dr.learners.UCRLVTR().plan(begun, session.release())
    kept = privatizer.stored(query, dr.Seeded(0))
    kept.submit_many(next(data.chunks()), np.arange(1000))
    stored = kept.release().keep()
    for thing in (
        kept,
        stored,
        mdp,
        mdp.layout,
        data,
        learned,
        release,
        result,
        result.guarantee,
        setup,
        setup.mechanism,
        setup.query,
        session,
        plan,
        state,
        dr.estimate_run(setup),
        setup.mdp,
        setup.mdp.features,
        dr.Seeded(0),
        dr.Secure(),
        dr.reports.make_report(stored, learned, dr.mechanisms.ProblemSpec(mdp.layout)),
        dr.PolicyTable.of(learned),
        dr.mechanisms.SignedDigits(100, 3),
    ):
        fits(thing)
    local = dr.Local(epsilon=10.0, delta=1e-5).start(setup.query, setup.schedule, dr.Secure())
    fits(local.device)
    fits(local)


# ------------------------------------------------------------------------- names of earlier versions
def test_a_renamed_name_says_the_new_one() -> None:
    with pytest.raises(
        AttributeError, match=r"^discreet\.Outcome was renamed in 0\.3\.0: discreet\.pipeline\.LearnResult$"
    ):
        _ = dr.Outcome  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="module 'discreet.envs' has no attribute 'nothing'"):
        _ = dr.envs.nothing  # type: ignore[attr-defined]
    with pytest.raises(ModuleNotFoundError, match=r"discreet\.offline was renamed in 0\.3\.0"):
        importlib.import_module("discreet.offline.release")
    with pytest.raises(
        ImportError, match=r"discreet\.UCBVI was renamed in 0\.3\.0: discreet\.learners\.UCBVI"
    ):
        exec("from discreet import UCBVI")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from discreet import nothing")
    with pytest.raises(ModuleNotFoundError, match="No module named 'discreet.nothing'"):
        importlib.import_module("discreet.nothing")


def test_every_new_name_is_there() -> None:
    for old, new in list(renaming._table().items())[1:]:
        for one in new.split(", ") if new else ():  # empty: the name was removed
            assert resolved(one) is not None, old


def resolved(full: str) -> object:
    """A module, or an attribute of one."""
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError as error:
        if error.name != full:  # an extra that is not installed
            return error
        home, _, name = full.rpartition(".")
        return getattr(importlib.import_module(home), name)
