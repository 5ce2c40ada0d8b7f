"""Records of private reinforcement learning: frozen tasks, submissions, what of them can be recomputed.

A :class:`Task` has an identifier that will not be used for anything else: what is measured, on which world,
with how many users, at which true budget, over how many seeds, and how a row's number and interval are made.
A submission is a TOML or JSON file (:func:`read`): who, code, commit, guarantee with its neighbours,
settings, and results a seed, a world or a cohort size. :func:`verify` recomputes what it can: the number from
the results, and where the settings are a run of this library, the guarantee, and one of the runs.

Only one neighbour relation counts, that one user's whole episode is replaced: under add or remove the same
noise has up to half the epsilon, and two such rows could not be compared.

A submission whose learner was tuned names the file of `discreet tune` (:func:`_check_tuning`). All learners
get the same effort (:data:`EFFORT`) on the training worlds, and no world and no seed of a tuning is reported
on. A submission without it stays readable, and its row says "not tuned".
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.leaderboard.env_suites import BROAD
from discreet import registry
from discreet.accounting.text.guarantee_sentences import up
from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.families import TRANSITIONS
from discreet.core.guarantee import Guarantee
from discreet.core.rng import Seeded
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments import build_run
from discreet.experiments.run_config import RunConfig
from discreet.experiments.simulate import Setup, iterate_runs
from discreet.experiments.statistics import Interval, mean_interval, number
from discreet.experiments.training_worlds import TRAINING_WORLDS
from discreet.experiments.tuning import TrainingWorld, Tuning, mark_of, worlds_of
from discreet.mechanisms.interfaces import Schedule
from discreet.utils.markdown_table import Table, markdown
from discreet.utils.toml_file import flat_options, read_toml, to_toml

__all__ = [
    "EFFORT", "RELATION", "TASKS", "Check", "Submission", "Task", "broad", "fill", "interval", "read",
    "table", "task", "tasks_table", "verify", "written",
]  # fmt: skip

FORMAT = 1
RELATION = "replace"
_TASKS, _ROWS = "tasks", "records"  # what stands between a page's marks
WORLDS = tuple(
    w.name for w in BROAD if w.kind not in ("large", "icu") and w.name != "Taxi"
)  # below 50 states
Form = Literal["per_seed", "per_world", "per_size", "value"]
Statistic = Literal["mean", "worst", "least size", "value"]
Prepare = Callable[[RunConfig], Setup]
_NORMAL = 1.959963984540054
_SHOWN, _DRAWS = 0.8, 16
# of every tuning: trials (the first one: the default), seeds of each trial and world, users of a run
EFFORT: Mapping[str, int] = {"trials": 32, "seeds": 4, "users": 20_000}


@dataclass(frozen=True)
class Task:
    """One frozen task.

    name : its identifier; definition : everything that is fixed, in words; metric : what a result is, less
    is better; form : what a submission has; statistic : how the row's number is made of it; epsilon, delta :
    the largest true budget; trust : the weakest trust model that is allowed; least : results at least, in
    numbers of seeds (of each world; of draws of each size); users, run : what a run of this library must be
    set to.
    """

    name: str
    title: str
    definition: str
    metric: str
    form: Form
    statistic: Statistic
    epsilon: float
    delta: float
    trust: Literal["joint", "shuffle", "local"] = "joint"
    least: int = 1
    users: int | None = None
    run: Mapping[str, Any] = field(default_factory=dict)


_CHAIN = "RiverSwim (S = 6, A = 2, H = 20; the registry's `riverswim` with `rewards=bernoulli`)"
_CHAIN_RUN = {"env": "riverswim", "env_options": {"rewards": "bernoulli"}, "episodes": 20_000}
_SUITE = (
    f"the {len(WORLDS)} worlds of `benchmarks.leaderboard.env_suites.BROAD` with fewer than 50 states, "
    "nothing told to the learner but S, A, H and K, one setting for all worlds; K = "
)
_SHARE = "final regret over the uniform policy's"
_LATE = "regret per user in the last quarter of the run over the uniform policy's"
_MEAN, _WORST = "mean of the worlds", "mean over seeds of the worst world"
_COUNT = (
    "standard deviation of one released transition count of a batch of 10 000 people at S = 6, A = 2, "
    "H = 20, all transition counts being released and nothing else"
)


def _broad(name: str, title: str, metric: str, statistic: Statistic, users: int) -> Task:
    words = f"{_SUITE}{users:,}".replace(",000", " 000")
    return Task(name, title, words, metric, "per_world", statistic, 1.0, 1e-6, least=32, users=users)


def _noise(name: str, trust: Literal["joint", "shuffle", "local"], words: str) -> Task:
    title, metric = f"Noise of a count: {words}", "standard deviation"
    text = f"{_COUNT}; {words}"
    return Task(name, title, text, metric, "value", "value", 1.0, 1e-6, trust, users=10_000)


def _shown(epsilon: float) -> Task:
    return Task(
        f"icu-shown-eps{epsilon:g}-v1", f"Patients until a gain is shown, ε = {epsilon:g}",
        "ICU-Sepsis (`icu_sepsis()`, H = 20, S = 716) treated by its expert; one release of n patients. "
        "A policy made of it is *shown* to be better than the expert's if a lower bound of its gain, made of "
        "the same release, is above 0; where nothing helps that may happen in 2.5 % of draws",
        f"least n tried from which on, at every larger n tried, a gain is shown in {_SHOWN:.0%} of the draws",
        "per_size", "least size", epsilon, 1e-6, least=_DRAWS,
    )  # fmt: skip


TASKS: tuple[Task, ...] = (
    Task(
        "riverswim-v1", "RiverSwim, 20 000 users", f"{_CHAIN}, K = 20 000 users, one episode each",
        "cumulative pseudo-regret after 20 000 users, from exact values of the deployed policies (the "
        "uniform policy: 67 069)",
        "per_seed", "mean", 1.0, 1e-6, least=32, users=20_000, run=_CHAIN_RUN,
    ),
    _broad("broad-mean-v1", "Broad suite, mean world", f"{_SHARE}, {_MEAN}", "mean", 20_000),
    _broad("broad-worst-v1", "Broad suite, worst world", f"{_SHARE}, {_WORST}", "worst", 20_000),
    _broad("late-mean-v1", "Late share, mean world", f"{_LATE}, {_MEAN}", "mean", 200_000),
    _broad("late-worst-v1", "Late share, worst world", f"{_LATE}, {_WORST}", "worst", 200_000),
    _shown(1.0),
    _shown(10.0),
    _noise("noise-central-v1", "joint", "a trusted server"),
    _noise("noise-shuffle-v1", "shuffle", "a trusted shuffler, everybody honest"),
    _noise("noise-local-v1", "local", "nobody is trusted"),
    Task(
        "time-v1", "Time of a private episode",
        f"{_CHAIN}, K = 20 000 users, simulated: acting, noise, releases and planning, one thread, on a "
        "machine that is named, after a run that does not count",
        "microseconds of wall time per user",
        "per_seed", "mean", 1.0, 1e-6, least=5, users=20_000, run=_CHAIN_RUN,
    ),
)  # fmt: skip


def task(name: Any) -> Task:
    """The task of this identifier; raises ``ValueError`` if there is none."""
    found = {one.name: one for one in TASKS}
    if name not in found:
        raise ValueError(f"task = {name!r}: must be one of {', '.join(found)}")
    return found[name]


# ----------------------------------------------------------------------------------- a submission
_TRUSTS = ("joint", "shuffle", "local", "none")
_ALLOWED = {"joint": ("joint", "shuffle", "local"), "shuffle": ("shuffle", "local"), "local": ("local",)}
_TEXT = ("task", "system", "who", "code", "commit", "date")
_KEYS = {"format", *_TEXT, "note", "machine", "guarantee", "run", "results", "stated", "tuning"}
_RESULTS: Mapping[str, tuple[str, ...]] = {
    "per_seed": ("seed", "per_seed"),
    "per_world": ("seed", "worlds"),
    "per_size": ("sizes",),
    "value": ("value",),
}


@dataclass(frozen=True)
class Submission:
    """A row of the records, checked for form; ``epsilon`` is None where nothing is promised (a reference)."""

    path: Path
    content: Mapping[str, Any]
    task: Task
    trust: str
    epsilon: float | None
    delta: float
    results: Mapping[str, Any]
    config: RunConfig | None
    tuning: Tuning | None = None

    @property
    def system(self) -> str:
        """What was measured."""
        return str(self.content["system"])


def read(path: Path) -> Submission:
    """A submission from a TOML or JSON file; ``ValueError`` says what is missing or not allowed."""
    if path.suffix == ".json":
        try:
            content = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ValueError(f"{path}: must be a readable file ({error.strerror})") from None
        except ValueError as error:
            raise ValueError(f"{path}: is not JSON: {error}") from None
    else:
        content = read_toml(path)
    return _checked(path, content)


def _checked(path: Path, content: Any, filled: bool = True) -> Submission:
    if not isinstance(content, dict):
        raise ValueError(f"{path}: must be a table of settings")
    if unknown := sorted(set(content) - _KEYS):
        raise ValueError(
            f"{unknown[0]!r} is no part of a submission: must be one of {', '.join(sorted(_KEYS))}"
        )
    if content.get("format") != FORMAT:
        raise ValueError(f"format = {content.get('format')!r}: must be {FORMAT}")
    for name in _TEXT:
        if not isinstance(content.get(name), str) or not content[name].strip():
            raise ValueError(f"{name} = {content.get(name)!r}: must be a text that is not empty")
    asked = task(content["task"])
    config = None
    if "run" in content:
        config = RunConfig.from_table(_table("run", content["run"]))
        _check_run(asked, config)
    trust, epsilon, delta = _check_guarantee(asked, _table("guarantee", content.get("guarantee")))
    results = _table("results", content.get("results"))
    if filled:
        _check_results(asked, results)
    if asked.name.startswith("time-") and not content.get("machine"):
        raise ValueError(f"machine = {content.get('machine')!r}: must name the processor that was timed")
    tuning = None
    if "tuning" in content:
        tuning = _check_tuning(path, asked, config, results, _table("tuning", content["tuning"]))
    return Submission(path, content, asked, trust, epsilon, delta, results, config, tuning)


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} = {value!r}: must be a table")
    return value


def _check_run(asked: Task, config: RunConfig) -> None:
    for name, wanted in asked.run.items():
        value = getattr(config, name)
        value = dict(value) if isinstance(value, Mapping) else value
        if value != wanted:
            raise ValueError(f"run.{name} = {value!r}: must be {wanted!r} for {asked.name}")


def _tuning(path: Path, given: Mapping[str, Any]) -> tuple[Tuning, dict[str, Any]]:
    """The tuning that a submission names, and what the submission must say of it."""
    name = given.get("file")
    if not isinstance(name, str) or not name:
        raise ValueError(f"tuning.file = {name!r}: must be the path of a file of `discreet tune`")
    file = path.parent / name
    found = Tuning.load(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return found, {
        "file": name, "digest": digest, **{key: found.effort[key] for key in EFFORT},
        "seed": found.config.seed, "worlds": [world.name for world in found.worlds],
    }  # fmt: skip


def _check_tuning(
    path: Path, asked: Task, config: RunConfig | None, results: Mapping[str, Any], given: Mapping[str, Any]
) -> Tuning:
    """The tuning of a submission: what is said of it, the effort, its worlds, and nothing reported on."""
    if asked.form not in ("per_seed", "per_world"):
        raise ValueError(f"tuning: must be left out for {asked.name}, where no learner is simulated")
    found, true = _tuning(path, given)
    for name in {**true, **given}:
        if given.get(name) != true.get(name):
            raise ValueError(
                f"tuning.{name} = {given.get(name)!r}: must be {true.get(name)!r}, as in the file"
            )
    for name, effort in EFFORT.items():
        if true[name] != effort:
            raise ValueError(f"tuning.{name} = {true[name]}: must be {effort}, the same for every learner")
    reported = (
        {config.env: registry.build("environment", config.env, None, config.env_options)}
        if config is not None
        else _reported_worlds()
        if asked.form == "per_world"
        else {"riverswim": registry.make("riverswim")}
    )
    seeds = [results["seed"]] if isinstance(results.get("seed"), int) else []
    found.check_apart(reported, seeds)
    if {_known(world) for world in found.worlds} != _training():
        raise ValueError(f"tuning.worlds: must be the {len(TRAINING_WORLDS)} training worlds, and no others")
    if config is not None:
        _check_tuned(config, found)
    return found


def _check_tuned(config: RunConfig, found: Tuning) -> None:
    """The settings that ran are those of the tuning, for the same learner, mechanism and budget."""
    ours = build_run.resolved(config)
    for name in ("learner", "privatizer", "epsilon", "delta", "preset"):
        if getattr(ours, name) != getattr(found.config, name):
            raise ValueError(
                f"run.{name} = {getattr(ours, name)!r}: must be {getattr(found.config, name)!r}, as tuned"
            )
    wanted = flat_options("options", found.options)
    for name in {**wanted, **ours.options}:
        if ours.options.get(name) != wanted.get(name):
            raise ValueError(
                f"run.options.{name} = {ours.options.get(name)!r}: must be {wanted.get(name)!r}, as tuned"
            )


def _known(world: TrainingWorld) -> tuple[str, str, str]:
    return world.env, str(sorted(world.env_options.items())), world.mark


@cache
def _training() -> frozenset[tuple[str, str, str]]:
    worlds = worlds_of(None)
    marks = (mark_of(registry.make(one.env, **one.env_options)) for one in worlds)
    return frozenset(_known(replace(one, mark=mark)) for one, mark in zip(worlds, marks, strict=True))


@cache
def _reported_worlds() -> dict[str, TabularMDP]:
    return {world.name: world.build() for world in BROAD if world.name in WORLDS}


def _check_guarantee(asked: Task, given: Mapping[str, Any]) -> tuple[str, float | None, float]:
    trust = given.get("trust")
    if trust not in _TRUSTS:
        raise ValueError(f"guarantee.trust = {trust!r}: must be one of {', '.join(_TRUSTS)}")
    if trust == "none":
        if "epsilon" in given:
            raise ValueError(
                "guarantee.epsilon: must be left out where trust is none, a reference without guarantee"
            )
        return trust, None, 0.0
    if given.get("relation") != RELATION:
        raise ValueError(
            f"guarantee.relation = {given.get('relation')!r}: must be {RELATION!r}, one user's whole "
            f"episode replaced "
            "by another (under add or remove the same noise has up to half the epsilon)"
        )
    if trust not in _ALLOWED[asked.trust]:
        raise ValueError(
            f"guarantee.trust = {trust!r}: must be one of {', '.join(_ALLOWED[asked.trust])} for {asked.name}"
        )
    epsilon = checks.positive("guarantee.epsilon", given.get("epsilon"))
    delta = checks.real("guarantee.delta", given.get("delta", 0.0), 0.0, 1.0, open_high=True)
    for name, value, most in (("epsilon", epsilon, asked.epsilon), ("delta", delta, asked.delta)):
        if value > most * (1 + 1e-9):
            raise ValueError(f"guarantee.{name} = {value:g}: must be at most {most:g} for {asked.name}")
    if not isinstance(given.get("proof"), str) or not given["proof"].strip():
        raise ValueError("guarantee.proof: must say where the guarantee is derived for these neighbours")
    return trust, epsilon, delta


def _check_results(asked: Task, given: Mapping[str, Any]) -> None:
    for name in _RESULTS[asked.form]:
        if name not in given:
            raise ValueError(f"results.{name}: must be given for {asked.name}")
    if asked.form == "per_seed":
        values = given["per_seed"]
        if not isinstance(values, list) or len(values) < asked.least:
            raise ValueError(f"results.per_seed: must be a list of at least {asked.least} numbers, one a run")
        for i, value in enumerate(values):
            checks.real(f"results.per_seed[{i}]", value)
    elif asked.form == "per_world":
        rows = _rows("results.worlds", given["worlds"], ("world", "share", "error", "seeds"))
        named = [row["world"] for row in rows]
        lacking, extra = sorted(set(WORLDS) - set(named)), sorted(set(named) - set(WORLDS))
        if lacking or extra or len(named) != len(WORLDS):
            words = (
                f"{', '.join(lacking)} are missing"
                if lacking
                else f"{', '.join(extra) or 'some'} are too many"
            )
            raise ValueError(f"results.worlds: must have each of the {len(WORLDS)} worlds once: {words}")
        for row in rows:
            checks.integer(f"results.worlds, {row['world']}: seeds", row["seeds"], asked.least)
            checks.real(f"results.worlds, {row['world']}: share", row["share"])
            checks.real(f"results.worlds, {row['world']}: error", row["error"], 0.0)
    elif asked.form == "per_size":
        for row in _rows("results.sizes", given["sizes"], ("users", "shown", "draws")):
            users = checks.integer("results.sizes: users", row["users"], 1)
            draws = checks.integer(f"results.sizes, {users} users: draws", row["draws"], asked.least)
            if checks.integer(f"results.sizes, {users} users: shown", row["shown"], 0) > draws:
                raise ValueError(
                    f"results.sizes, {users} users: shown = {row['shown']}: must be at most {draws}"
                )
    else:
        checks.positive("results.value", given["value"])


def _rows(name: str, value: Any, keys: Sequence[str]) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) for row in value):
        raise ValueError(f"{name} = {value!r}: must be a list of tables with {', '.join(keys)}")
    for row in value:
        if set(row) != set(keys):
            raise ValueError(f"{name}: {row!r}: must have {', '.join(keys)}, and nothing else")
    return value


# ------------------------------------------------------------------------------- numbers of a row
def interval(given: Submission) -> Interval:
    """The row's number with its 95 % interval, from the results.

    Seeds: Student's t. Worlds: they are fixed, errors of their means add up; the worst world has its own
    error, and that it was chosen for being the worst is not in the interval. Sizes and values have none; a
    size that none reaches is infinite.
    """
    asked, results = given.task, given.results
    if asked.form == "per_seed":
        return mean_interval(results["per_seed"])
    if asked.form == "per_world":
        shares, errors = (
            np.array([row[key] for row in results["worlds"]], float) for key in ("share", "error")
        )
        worst = int(np.argmax(shares))
        centre, error = float(shares.mean()), float(math.hypot(*errors)) / len(shares)
        if asked.statistic == "worst":
            centre, error = float(shares[worst]), float(errors[worst])
        half = _NORMAL * error
        return Interval(centre, centre - half, centre + half, 0.95, "normal", len(shares))
    if asked.form == "per_size":
        least = math.inf
        for row in sorted(results["sizes"], key=lambda one: -one["users"]):
            if row["shown"] < _SHOWN * row["draws"]:
                break
            least = row["users"]
        return Interval(least, None, None, 0.95, "least size", len(results["sizes"]))
    return Interval(float(results["value"]), None, None, 0.95, "computed", 1)


def said(given: Submission) -> str:
    """The row's number as the table has it."""
    found = interval(given)
    if given.task.form == "per_world":
        worst = ""
        if given.task.statistic == "worst":
            worst = f" ({max(given.results['worlds'], key=lambda row: row['share'])['world']})"
        low, high = (f"{100 * float(x or 0):.3g}" for x in (found.low, found.high))
        return f"{100 * found.estimate:.3g} % [{low}, {high}]{worst}"
    if given.task.form == "per_size":
        most = max(row["users"] for row in given.results["sizes"])
        return f"> {most:,}" if math.isinf(found.estimate) else f"{int(found.estimate):,}"
    return number(found.estimate) if found.low is None else f"{number(found.estimate)} {found.brackets()}"


# ----------------------------------------------------------------------------------- verification
@dataclass(frozen=True)
class Check:
    """One thing that was looked at. ok : whether it is as stated; None: it could not be recomputed."""

    name: str
    ok: bool | None
    words: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def verify(given: Submission, prepare: Prepare, rerun: bool = False) -> list[Check]:
    """Recompute what can be.

    prepare : a configuration to the set-up of its run; rerun : also run one of the seeds again. Which one
    follows from the results, so that whoever writes the file cannot choose.
    """
    found = [_statistic(given)]
    if given.tuning is not None:
        found.append(_trial_again(given.tuning) if rerun else Check("tuning", True, _tuned(given)))
    if given.config is None:
        found.append(Check("guarantee", None, "no run of this library: the proof that is named must be read"))
        return found
    setup = prepare(given.config)
    found.append(_privacy(given, setup))
    if given.task.form == "value":
        std = count_noise(setup, given.task.users or 1)
        same = math.isclose(std, float(given.results["value"]), rel_tol=1e-3)
        found.append(
            Check("value", same, f"{std:.4g} by the mechanism, {given.results['value']:.4g} submitted")
        )
    elif given.task.name.startswith("time-"):
        found.append(Check("results", None, "times of another machine cannot be recomputed"))
    elif rerun:
        found.append(_again(given, setup))
    else:
        found.append(Check("results", None, "no run was repeated (--rerun repeats one)"))
    return found


def _statistic(given: Submission) -> Check:
    found, stated = interval(given), given.content.get("stated", {})
    words = f"{said(given)}, from {found.count} results"
    for name, value in (("value", found.estimate), ("low", found.low), ("high", found.high)):
        if name in stated and not (value is not None and math.isclose(stated[name], value, rel_tol=1e-3)):
            return Check("statistic", False, f"{words}; stated.{name} = {stated[name]!r} is not {value!r}")
    return Check("statistic", True, words + ("" if stated else "; nothing else is stated"))


def _trial_again(tuning: Tuning) -> Check:
    """One trial of the tuning again, on one of its worlds; which ones follows from all shares."""
    shares = [share for one in tuning.trials for share in one.shares]
    digest = hashlib.sha256(json.dumps(shares).encode()).digest()
    number, at = divmod(int.from_bytes(digest[:8], "big") % len(shares), len(tuning.worlds))
    trial, world = tuning.trials[number], tuning.worlds[at]
    options = {**tuning.config.options, **{f"learner.{name}": v for name, v in trial.options.items()}}
    config = replace(tuning.config, env=world.env, env_options=world.env_options, options=options)
    setup = build_run.prepare(build_run.resolved(config))
    runs = iterate_runs(setup, config.seed, range(config.seeds))
    lost = setup.episodes * (setup.optimal_value - setup.uniform_value)
    share = float(np.mean([one.regret[-1] for one in runs])) / lost
    same = math.isclose(share, trial.shares[at], rel_tol=1e-6)
    return Check(
        "tuning",
        same,
        f"trial {number} on {world.name} again: {share:.6g}, in the file {trial.shares[at]:.6g}",
    )


def _privacy(given: Submission, setup: Setup) -> Check:
    true = setup.guarantee
    if true.epsilon is None:
        return Check("guarantee", given.epsilon is None, "the settings promise nothing")
    words = f"the settings have true ε = {true.epsilon:.4g}, δ = {true.delta:.3g}, {true.trust}"
    if given.epsilon is None:
        return Check("guarantee", True, f"{words}; none is claimed")
    same = (
        true.epsilon <= given.epsilon * (1 + 1e-6)
        and true.delta <= given.delta * (1 + 1e-6) + 1e-300
        and true.trust in _ALLOWED.get(given.trust, (given.trust,))
    )
    return Check(
        "guarantee", same, f"{words}; submitted ε = {given.epsilon:.4g}, δ = {given.delta:.3g}, {given.trust}"
    )


def sampled(given: Submission) -> int:
    """Which run is repeated: a number that follows from all results."""
    content = json.dumps(given.results, sort_keys=True).encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big") % len(given.results["per_seed"])


def _again(given: Submission, setup: Setup) -> Check:
    run = sampled(given)
    seed = checks.integer("results.seed", given.results["seed"], 0)
    value = float(setup.run(seed, run).regret[-1])
    stated = float(given.results["per_seed"][run])
    same = math.isclose(value, stated, rel_tol=1e-9)
    hint = "" if same else " (another version of the library draws other numbers)"
    return Check(
        "results", same, f"run {run} of seed {seed} again: {value:.10g}, submitted {stated:.10g}{hint}"
    )


def count_noise(setup: Setup, users: int) -> float:
    """Standard deviation of a transition count of one batch of people, transitions alone being released."""
    query = CountQuery(setup.mdp.layout, visits=False, known_rewards=True)
    mechanism: Any = setup.privatizer.mechanism(query, Schedule.one_shot(users), Seeded(0))
    if hasattr(mechanism, "laws_at"):
        return float(mechanism.laws_at(users)[TRANSITIONS].std())
    return float(mechanism.laws.measurement(users, users)[TRANSITIONS].std())


# ----------------------------------------------------------------------------- making submissions
def guarantee_table(true: Guarantee, proof: str) -> dict[str, Any]:
    """What a submission says of a guarantee of this library."""
    if true.epsilon is None:
        return {"trust": "none"}
    epsilon = float(f"{true.epsilon:.9g}")
    trust = "joint" if true.trust == "central" else true.trust
    return {"relation": RELATION, "trust": trust, "epsilon": epsilon, "delta": true.delta, "proof": proof}


def fill(path: Path, prepare: Prepare, seeds: int | None = None, workers: int | None = None) -> str:
    """A submission with ``run`` and without results, run: its text with results, a seed each, and guarantee.

    ``results.seed`` is the seed of all runs, ``seeds`` their number (the least of the task by default).
    """
    content = dict(read_toml(path))
    asked = task(content.get("task"))
    if "run" not in content or asked.form not in ("per_seed", "value"):
        raise ValueError(
            f"{path}: must have a table run, for a task with results a seed or with a computed value"
        )
    content = _with_tuning(path, content)
    config = RunConfig.from_table(_table("run", content["run"]))
    _check_run(asked, config)
    setup = prepare(config)
    proof = "discreet.core.guarantee: computed from the mechanism's own noise"
    content["guarantee"] = guarantee_table(setup.guarantee, proof) | {
        name: value for name, value in content.get("guarantee", {}).items() if name in ("claim",)
    }
    if asked.form == "value":
        content["results"] = {"value": float(f"{count_noise(setup, asked.users or 1):.6g}")}
    else:
        seed = checks.integer("results.seed", content.get("results", {}).get("seed"), 0)
        runs = range(checks.integer("seeds", asked.least if seeds is None else seeds, asked.least))
        timed = asked.name.startswith("time-")
        if timed:
            setup.run(seed, len(runs))  # loads what is compiled
        done = sorted(iterate_runs(setup, seed, runs, 1 if timed else workers), key=lambda one: one.run)
        values = [float(one.regret[-1]) for one in done]
        if timed:
            values = [float(f"{1e6 * one.seconds / setup.episodes:.4g}") for one in done]
        content["results"] = {"seed": seed, "per_seed": values}
    return to_toml(_checked(path, content).content)


def _with_tuning(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """The content with all that is said of the tuning it names, and with the tuned settings in ``run``."""
    if "tuning" not in content:
        return content
    found, true = _tuning(path, _table("tuning", content["tuning"]))
    one = found.config
    run = {
        "learner": one.learner, "privatizer": one.privatizer, "epsilon": one.epsilon, "delta": one.delta,
        "preset": one.preset, **content["run"], "options": found.options,
    }  # fmt: skip
    return {
        **content,
        "tuning": true,
        "run": {name: value for name, value in run.items() if value is not None},
    }


def broad(
    lines: Iterable[str],
    budget: str,
    about: Mapping[str, Any],
    guarantee: Mapping[str, Any],
    folder: Path = Path(),
) -> tuple[dict[str, str], list[str]]:
    """Submissions to the broad tasks from the JSON lines of ``python -m benchmarks.studies.broad --out``.

    budget : its name there; about : who, system, code, commit, date, tuning; guarantee : the table of it;
    folder : of the submissions, in which the path of the tuning begins. Returns texts by task, and what is
    missing for the other tasks.
    """
    rows = [json.loads(line) for line in lines if line.strip()]
    texts: dict[str, str] = {}
    missing: list[str] = []
    for asked in (one for one in TASKS if one.form == "per_world"):
        late = asked.name.startswith("late")
        mine = [row for row in rows if (row["budget"], row["users"]) == (budget, asked.users)]
        for seed, learner in dict.fromkeys((row["seed"], row["learner"]) for row in mine):
            chosen = [
                r for r in mine if (r["seed"], r["learner"]) == (seed, learner) and r["world"] in WORLDS
            ]
            lacking = sorted(set(WORLDS) - {row["world"] for row in chosen})
            if lacking:
                missing.append(f"{asked.name}: {len(lacking)} of {len(WORLDS)} worlds, {lacking[0]} first")
                continue
            worlds = [
                {
                    "world": row["world"],
                    "share": row["late"] if late else row["share"],
                    "error": row["late_error"] if late else row["error"] * row["share"] / row["regret"],
                    "seeds": row["seeds"],
                }
                for row in chosen
            ]
            content = {
                "format": FORMAT, "task": asked.name, **about,
                "guarantee": dict(guarantee), "results": {"seed": seed, "worlds": worlds},
            }  # fmt: skip
            name = asked.name if asked.name not in texts else f"{asked.name}-{seed}-{len(texts)}"
            texts[name] = to_toml(_checked(folder / name, content).content)
        if not mine:
            missing.append(f"{asked.name}: nothing at budget {budget!r} and {asked.users:,} users")
    return texts, missing


# ----------------------------------------------------------------------------------------- tables
def tasks_table() -> Table:
    """A line a task."""
    lines: list[tuple[str, ...]] = [
        ("identifier", "what", "metric (less is better)", "true budget", "at least")
    ]
    for one in TASKS:
        trust = {"joint": "any", "shuffle": "shuffle or local", "local": "local"}[one.trust]
        least = {
            "per_seed": f"{one.least} seeds", "per_world": f"{one.least} seeds a world",
            "per_size": f"{one.least} draws a size", "value": "computed",
        }[one.form]  # fmt: skip
        budget = f"({one.epsilon:g}, {one.delta:.0e}), trust: {trust}".replace("e-0", "e-")
        lines.append((f"`{one.name}`", one.definition, one.metric, budget, least))
    return lines


def table(given: Sequence[Submission]) -> str:
    """Markdown: a table for every task, least first, what promises nothing after what does."""
    parts = []
    for one in TASKS:
        rows = sorted(
            (row for row in given if row.task == one),
            key=lambda row: (row.epsilon is None, interval(row).estimate, row.system),
        )
        parts.append(f"### {one.title}\n\n`{one.name}`: {one.metric}.")
        lines: list[tuple[str, ...]] = [
            ("system", "true guarantee", "result", "runs", "tuning", "who", "file", "note")
        ]
        for row in rows:
            claim = str(row.content["guarantee"].get("claim", ""))
            promise = f"none{f' ({claim})' if claim else ''}"
            if row.epsilon is not None:
                delta = f"δ = {up(row.delta, 2)}".replace("e-0", "e-") if row.delta else "pure"
                promise = f"ε = {up(row.epsilon, 3)}, {delta}, {row.trust}"
            result = said(row) if row.epsilon is None else f"**{said(row)}**"
            file = f"[{row.path.stem.removeprefix(f'{one.name}-')}](records/{row.path.name})"
            who, note = str(row.content["who"]), str(row.content.get("note", ""))
            lines.append((row.system, promise, result, _counted(row), _tuned(row), who, file, note))
        parts.append(markdown(lines) if rows else "No row yet.")
    return "\n\n".join(parts) + "\n"


def _counted(given: Submission) -> str:
    form, results = given.task.form, given.results
    if form == "per_seed":
        return f"{len(results['per_seed'])} seeds"
    if form == "per_world":
        return f"{min(row['seeds'] for row in results['worlds'])} seeds a world"
    if form == "per_size":
        return f"{min(row['draws'] for row in results['sizes'])} draws a size"
    return "computed"


def _tuned(given: Submission) -> str:
    """The effort of the row's tuning, in words."""
    if given.task.form not in ("per_seed", "per_world") or given.task.name.startswith("time-"):
        return "—"
    if given.tuning is None:
        return "not tuned"
    e = given.tuning.effort
    return f"{e['trials']} trials, {e['worlds']} worlds, {e['seeds']} seeds"


def written(page: str, given: Sequence[Submission]) -> str:
    """A page with the tasks and the tables between its marks, ``<!-- tasks: begin -->`` and so on."""
    for name, text in ((_TASKS, markdown(tasks_table())), (_ROWS, table(given).rstrip("\n"))):
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"page: must have the lines {begin} and {end}, in this order")
        page = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return page
