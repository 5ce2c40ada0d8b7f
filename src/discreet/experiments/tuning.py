"""Tuning of a learner's options by random search, with the same effort for every learner.

Trial 0 is the learner with only the options that the user gave. Every further trial draws some of the options
that are searched (:mod:`discreet.experiments.search_space`). The score of a trial is the mean final regret
divided by the regret of the uniform policy, as geometric mean over the environments.

A tuning changes the guarantee, the released sums or the times of releases only if the user names such an
option. Reports must use other environments and other seeds (:meth:`Tuning.check_apart`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from discreet import registry
from discreet.core import checks
from discreet.envs.context_worlds import ContextWorld
from discreet.experiments import build_run, sweep
from discreet.experiments.engine import Engine
from discreet.experiments.run_config import TUNING, RunConfig, made_by
from discreet.experiments.search_space import Range, draw, search_space, usual_space
from discreet.experiments.training_worlds import CONTEXT_WORLDS, TRAINING_WORLDS
from discreet.mechanisms.features import FeatureMap
from discreet.utils.atomic_file import write_aside
from discreet.utils.markdown_table import html
from discreet.utils.toml_file import flat_options, read_toml, to_toml

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas as pd

    from discreet.envs.mdp.tabular import TabularMDP
    from discreet.experiments.results import Result
    from discreet.experiments.simulate import Setup

FORMAT = 1
SEED = 31
MEASURE = "geometric mean over environments of (mean final regret) / (regret of the uniform policy)"
_LEAST_SHARE = (
    1e-5  # smaller shares are raised to this number, so that an environment that is learned at once does not
    # dominate
)
_ATTEMPTS = 200
_SHOWN = 5
Worlds = str | Path | Sequence[Any]
Made = list[tuple["Setup", RunConfig, Path | None]]


def mark_of(mdp: TabularMDP | ContextWorld) -> str:
    """Return a digest of an environment's transitions, mean rewards and first states.

    If all steps are equal, the digest does not depend on the horizon. In an environment of contexts, the
    digest is that of 64 contexts and their mean rewards.
    """
    digest = hashlib.sha256()
    if isinstance(mdp, ContextWorld):
        contexts = np.asarray(mdp.draw(64, np.random.default_rng(0)), np.float64)
        for array in (contexts, np.asarray(mdp.means(contexts), np.float64)):
            digest.update(f"{array.shape}".encode() + (np.round(array, 12) + 0.0).tobytes())
        return digest.hexdigest()[:16]
    for array in (mdp.transitions, mdp.rewards):
        whole = np.asarray(array)
        alike = whole.strides[0] == 0 or bool((whole == whole[:1]).all())
        part = np.ascontiguousarray(whole[:1] if alike else whole, np.float64)
        digest.update(f"{part.shape}".encode() + (np.round(part, 12) + 0.0).tobytes())
    digest.update((np.round(np.asarray(mdp.initial, np.float64), 12) + 0.0).tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class TrainingWorld:
    """Environment in which options are tuned.

    Parameters
    ----------
    name : name in tables.
    env : name in the registry.
    env_options : options of the environment.
    mark : digest of the environment (:func:`mark_of`); empty before the environment is built.
    """

    name: str
    env: str
    env_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    mark: str = ""


def worlds_of(worlds: Worlds | None, learner: str = "") -> tuple[TrainingWorld, ...]:
    """Return the environments of a tuning.

    Parameters
    ----------
    worlds : str, path or sequence, optional
        None: the training environments of the leaderboard, or of contexts for a learner that reads contexts.
        A path is a TOML file with a table ``[[worlds]]`` for each environment. Each item of a table or
        sequence is a name in the registry, a mapping with ``env`` and optionally ``env_options`` and
        ``name``, or an environment that ``discreet.make`` has built.
    learner : str, optional
        Name in the registry, for the default.

    Raises
    ------
    ValueError
        If an environment has no registered name, or if two environments have the same name.
    """
    if worlds is None:
        contexts = learner and getattr(registry.entry("learner", learner).factory(), "FEATURES", None)
        listed = CONTEXT_WORLDS if contexts is FeatureMap else TRAINING_WORLDS
        return tuple(TrainingWorld(name, env, options) for _, name, env, options in listed)
    items: Any = read_toml(Path(worlds)).get("worlds") if isinstance(worlds, str | Path) else worlds
    if not isinstance(items, Sequence) or not items:
        raise ValueError(f"worlds = {checks.said(worlds)}: must be at least one environment")
    found = [_world(item) for item in items]
    for i, one in enumerate(found):
        if one.name in [other.name for other in found[:i]]:
            raise ValueError(f"worlds: {one.name!r} is there twice")
    return tuple(found)


def _world(item: Any) -> TrainingWorld:
    if isinstance(item, str):
        return TrainingWorld(item, item)
    if isinstance(item, Mapping):
        if unknown := sorted(set(item) - {"name", "env", "env_options", "mark"}):
            raise ValueError(f"worlds: {unknown[0]!r} is unknown: must be one of name, env, env_options")
        if not isinstance(item.get("env"), str):
            raise ValueError(f"worlds: env = {item.get('env')!r}: must be the name of an environment")
        options = flat_options("env_options", item.get("env_options", {}))
        name = item.get("name") or _named(item["env"], options)
        return TrainingWorld(str(name), item["env"], options, str(item.get("mark", "")))
    part = registry.remembered(item)
    if part is None:
        raise ValueError(
            f"worlds: {checks.said(item)}: must be a name in the registry, a mapping with env and "
            "env_options, or an environment that discreet.make built"
        )
    return TrainingWorld(_named(part.name, part.options), part.name, dict(part.options))


def _named(env: str, options: Mapping[str, Any]) -> str:
    return " ".join([env, *(f"{name}={value}" for name, value in sorted(options.items()))])


@dataclass(frozen=True)
class Trial:
    """Simulated setting of the options.

    Parameters
    ----------
    number : number of the trial; 0 is the setting without any drawn option.
    options : the drawn options of the learner.
    shares : for each environment, mean final regret / regret of the uniform policy.
    """

    number: int
    options: Mapping[str, Any] = field(hash=False)
    shares: tuple[float, ...]

    @property
    def score(self) -> float:
        """Geometric mean of the shares."""
        return math.exp(sum(math.log(max(_LEAST_SHARE, one)) for one in self.shares) / len(self.shares))


@dataclass(frozen=True)
class Tuning:
    """Result of a tuning: all trials, the best of them, and the effort.

    Parameters
    ----------
    config : configuration of trial 0, with its seed, number of seeds and number of users. Its environment is
        the first training environment.
    worlds : the training environments.
    space : the range of each option that was searched.
    trials : all trials, in the order of their numbers.
    """

    config: RunConfig
    worlds: tuple[TrainingWorld, ...]
    space: Mapping[str, Range] = field(hash=False)
    trials: tuple[Trial, ...] = ()

    @property
    def best(self) -> Trial:
        """Trial with the smallest score; the first if several trials have this score."""
        return min(self.trials, key=lambda one: (one.score, one.number))

    @property
    def options(self) -> dict[str, Any]:
        """Options of learner and privatizer in the best trial, including options that the user gave."""
        return {**self.config.options, **{f"learner.{k}": v for k, v in self.best.options.items()}}

    @property
    def effort(self) -> dict[str, int]:
        """Numbers of trials, environments, seeds per environment, users per run, simulated runs and users."""
        trials, worlds, seeds, users = (
            len(self.trials), len(self.worlds), self.config.seeds, self.config.episodes,
        )  # fmt: skip
        runs = trials * worlds * seeds
        return {
            "trials": trials, "worlds": worlds, "seeds": seeds, "users": users, "simulated_runs": runs,
            "simulated_users": runs * users,
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the tuning's file: the best configuration, and a table ``tuning``."""
        one = self.config
        table = {
            "learner": one.learner, "privatizer": one.privatizer, "epsilon": one.epsilon, "delta": one.delta,
            "preset": one.preset, "plugins": list(one.plugins), "options": dict(sorted(self.options.items())),
        }  # fmt: skip
        about = {
            "format": FORMAT, "measure": MEASURE, "best": self.best.number, "score": self.best.score,
            "score_of_trial_0": self.trials[0].score, **self.effort, "seed": one.seed, "made_by": made_by(),
            "given": dict(one.options),
            "search": {name: where.to_dict() for name, where in self.space.items()},
            "environments": [
                {"name": w.name, "env": w.env, "env_options": dict(w.env_options), "mark": w.mark}
                for w in self.worlds
            ],
            "tried": [
                {"number": t.number, "score": t.score, "options": dict(t.options), "shares": list(t.shares)}
                for t in self.trials
            ],
        }  # fmt: skip
        return {**{name: v for name, v in table.items() if v not in (None, [], {})}, TUNING: about}

    def save(self, path: Path | str) -> Path:
        """Write the tuning's file, which ``discreet run`` accepts as a configuration, and return its path."""
        to = Path(path)
        to.parent.mkdir(parents=True, exist_ok=True)
        write_aside(to, to_toml(self.to_dict()).encode())
        return to

    @classmethod
    def load(cls, path: Path | str) -> Tuning:
        """Read the file of a tuning from ``path``, and recompute its scores and its best trial.

        Raises ``ValueError`` if the file does not describe a tuning, or if its options differ from those
        of its best trial.
        """
        table = read_toml(Path(path))
        about = table.get(TUNING)
        if not isinstance(about, Mapping) or about.get("format") != FORMAT:
            raise ValueError(
                f"{path}: must be a file of `discreet tune`, with a table tuning of format {FORMAT}"
            )
        try:
            worlds = worlds_of(about["environments"])
            given = RunConfig.from_table({
                **{name: v for name, v in table.items() if name not in (TUNING, "options")},
                "options": about.get("given", {}), "env": worlds[0].env, "env_options": worlds[0].env_options,
                "episodes": about["users"], "seeds": about["seeds"], "seed": about["seed"],
            })  # fmt: skip
            trials = tuple(
                Trial(one["number"], one.get("options", {}), tuple(map(float, one["shares"])))
                for one in about["tried"]
            )
            space = {name: Range(**where) for name, where in about["search"].items()}
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: must be a file of `discreet tune`: {error!r}") from None
        found = cls(given, worlds, space, trials)
        stated = flat_options("options", table.get("options", {}))
        if any(len(one.shares) != len(worlds) for one in trials) or about.get("trials") != len(trials):
            raise ValueError(f"{path}: must have every trial, with one share for each environment")
        if stated != flat_options("options", found.options) or about.get("best") != found.best.number:
            raise ValueError(
                f"{path}: the options must be those of the best trial, number {found.best.number}"
            )
        return found

    def check_apart(self, worlds: Mapping[str, TabularMDP], seeds: Iterable[int]) -> None:
        """Raise ``ValueError`` if a report uses an environment or a seed of the tuning.

        Parameters
        ----------
        worlds : environments of the report, by name.
        seeds : seeds of the report.
        """
        marks = {one.mark: one.name for one in self.worlds}
        met = [name for name, mdp in worlds.items() if mark_of(mdp) in marks]
        if met:
            raise ValueError(f"worlds = {', '.join(met)}: must not be among the environments of the tuning")
        if self.config.seed in {*seeds}:
            raise ValueError(f"seed = {self.config.seed}: must not be the seed of the tuning")

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with one row per trial: number, score, searched options, and shares.

        There is one share for each environment.
        """
        import pandas as pd

        names = [world.name for world in self.worlds]
        return pd.DataFrame(
            [
                {"trial": one.number, "score": one.score}
                | {name: one.options.get(name) for name in self.space}
                | dict(zip(names, one.shares, strict=True))
                for one in self.trials
            ]
        )

    def rows(self, most: int = _SHOWN) -> list[tuple[str, str, str]]:
        """Return a table of the best trials and of trial 0, with number, score and drawn options.

        most : number of trials besides trial 0.
        """
        ranked = sorted(self.trials, key=lambda one: (one.score, one.number))
        shown = dict.fromkeys([*ranked[:most], self.trials[0]])
        return [
            (
                str(one.number),
                f"{one.score:.4g}",
                ", ".join(f"{k}={v}" for k, v in one.options.items()) or "as given",
            )
            for one in shown
        ]

    def __str__(self) -> str:
        e = self.effort
        return (
            f"{self.config.learner}: best of {e['trials']} trials is number {self.best.number}, with score "
            f"{self.best.score:.4g} (as given: {self.trials[0].score:.4g}); {e['worlds']} environments, "
            f"{e['seeds']} seeds, {e['users']:,} users a run"
        )

    def _repr_html_(self) -> str:
        """Return the best trials as an HTML table for notebooks."""
        return f"{html([[str(self)]], head=False)}{html([('trial', 'score', 'options'), *self.rows()])}"


# --------------------------------------------------------------------------------- making one
def _config(
    learner: Any, privatizer: Any, base: Mapping[str, Any], options: Mapping[str, Any] | None
) -> RunConfig:
    """Return the resolved configuration of trial 0."""
    table: dict[str, Any] = {**base, "options": dict(options or {})}
    plugins = [*base["plugins"]]
    kinds: tuple[tuple[Literal["learner", "privatizer"], Any], ...] = (
        ("learner", learner), ("privatizer", privatizer),
    )  # fmt: skip
    for kind, given in kinds:
        if isinstance(given, str):
            table[kind] = given
            continue
        part = registry.named(kind, given)
        if part is None:
            raise ValueError(f"{kind} = {checks.said(given)}: must be registered, or the name of a {kind}")
        table[kind] = part.name
        plugins += part.plugins
        own = {**part.options, **({} if part.preset is None else {"preset": part.preset})}
        if kind == "privatizer":
            for name in ("epsilon", "delta"):
                table[name] = own.pop(name, table[name])
        table["options"] |= {f"{kind}.{name}": value for name, value in own.items()}
    table["plugins"] = [*dict.fromkeys(plugins)]
    config = build_run.resolved(RunConfig.from_table({k: v for k, v in table.items() if v is not None}))
    for name in ("epsilon", "delta"):
        if table[name] is not None and getattr(config, name) is None:
            raise ValueError(f"{name} = {table[name]:g}: privatizer {config.privatizer!r} takes no budget")
    return config


def _same_public(one: Setup, other: Setup, times: bool) -> bool:
    """Return True if two experiments have the same guarantee and, if ``times`` is True, the same releases."""
    a, b = one.guarantee, other.guarantee
    same = (a.epsilon, a.delta, a.trust) == (b.epsilon, b.delta, b.trust)
    if not same or not times:
        return same
    return np.array_equal(one.times, other.times) and repr(one.query) == repr(other.query)


def _trial(
    configs: Sequence[RunConfig], first: Sequence[Setup], space: Mapping[str, Range], number: int, times: bool
) -> tuple[dict[str, Any], list[tuple[Setup, RunConfig]]]:
    """Return the options of a trial, and its experiment and configuration for each environment."""
    refused: object = "they change the guarantee, the released sums or the times of releases"
    for attempt in range(_ATTEMPTS):
        drawn = draw(space, configs[0].seed, number, attempt)
        options = {f"learner.{name}": value for name, value in drawn.items()}
        try:
            made = [replace(one, options={**one.options, **options}) for one in configs]
            setups = [build_run.prepare(one) for one in made]
        except ValueError as error:
            refused = error
            continue
        if all(_same_public(one, other, times) for one, other in zip(first, setups, strict=True)):
            return drawn, list(zip(setups, made, strict=True))
    raise ValueError(f"search: no options in these ranges were accepted in {_ATTEMPTS} draws: {refused}")


def tune(
    learner: Any,
    privatizer: Any = "none",
    *,
    worlds: Worlds | None = None,
    users: int = 20_000,
    trials: int = 32,
    seeds: int = 4,
    seed: int = SEED,
    epsilon: float | None = None,
    delta: float | None = None,
    preset: str | None = None,
    options: Mapping[str, Any] | None = None,
    search: Mapping[str, Any] | None = None,
    plugins: Sequence[str] = (),
    out: str | Path | None = None,
    workers: int | None = None,
    executor: Executor | Engine | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Tune the options of a learner by random search on training environments.

    Parameters
    ----------
    learner, privatizer : str or frozen dataclass object
        Registered names or objects, such as ``"dp-ucbvi"`` and ``dr.Central(epsilon=1.0, delta=1e-6)``.
    worlds : str, path or sequence, optional
        Training environments (default: those of the leaderboard). These are names in the registry, mappings
        with ``env`` and ``env_options``, environments made by ``discreet.make``, or a TOML file with tables
        ``[[worlds]]``.
    users : int
        Number of users in each run.
    trials : int
        Number of settings, including trial 0.
    seeds, seed : int
        Number of repetitions in each environment, and their seed. No report may use this seed.
    epsilon, delta, preset, options : optional
        Budget, preset and options of trial 0, as in a run configuration. These options are not searched.
    search : mapping, optional
        Options that are searched in addition, or in other ranges: ``{"bonus_scale": (0.01, 1.0)}``,
        ``{"post": ["lp", "raw"]}``, or ``{"replan_growth": (1.02, 1.3)}``. Only an option that is named here
        may change the released sums or the times of releases.
    plugins : sequence of str
        Modules that are imported first because they register names.
    out : str or path, optional
        Folder of the runs and of the file ``tuning.toml``. Runs that are already in the folder are not
        repeated. If None, results are not stored.
    workers, executor : optional
        As in :func:`discreet.sweep`. They do not affect the result.
    progress : callable, optional
        Function that is called with (number of the run, number of users simulated so far).

    Returns
    -------
    Tuning
        The best options, all trials, the ranges, and the effort.

    Raises
    ------
    ValueError
        If an argument is invalid, if the learner has no option to search, or if an environment has no regret.
        Then no run is started.
    """
    checks.integer("trials", trials, 1)
    found = worlds_of(worlds, learner)
    base = {
        "episodes": users, "seeds": seeds, "seed": seed, "epsilon": epsilon, "delta": delta,
        "preset": preset, "plugins": plugins,
    }  # fmt: skip
    config = _config(learner, privatizer, base, options)
    given = [n.partition(".")[2] for n in config.options if n.startswith("learner.")]
    space = search_space(config.learner, given, search)
    configs = [build_run.resolved(replace(config, env=one.env, env_options=one.env_options)) for one in found]
    first = [build_run.prepare(one) for one in configs]
    for one, setup in zip(found, first, strict=True):
        if not setup.optimal_value > setup.uniform_value:
            raise ValueError(f"worlds: {one.name!r} must have regret: the uniform policy is optimal there")
    found = tuple(replace(w, mark=mark_of(s.mdp)) for w, s in zip(found, first, strict=True))
    times = {*(search or {})} <= {*usual_space(config.learner)}
    drawn: list[dict[str, Any]] = [{}]
    made = list(zip(first, configs, strict=True))
    for number in range(1, trials):
        own, these = _trial(configs, first, space, number, times)
        drawn.append(own)
        made += these
    folder = None if out is None else Path(out)
    runs: Made = [
        (setup, one, None if folder is None else folder / sweep.folder_name(one)) for setup, one in made
    ]
    results = _run(runs, workers, executor, progress)
    shares = [float(np.mean(one.final_regret)) / one.uniform_regret for one in results]
    each = len(found)
    tried = tuple(Trial(i, own, tuple(shares[i * each : (i + 1) * each])) for i, own in enumerate(drawn))
    tuning = Tuning(configs[0], found, space, tried)
    if folder is not None:
        tuning.save(folder / "tuning.toml")
    return tuning


def _run(
    runs: Made,
    workers: int | None,
    executor: Executor | Engine | None,
    progress: Callable[[int, int], None] | None,
) -> list[Result]:
    """Simulate all runs."""
    places: dict[RunConfig, int] = {}
    once = [one for one in runs if places.setdefault(one[1], len(places)) == len(places) - 1]
    if executor is not None:
        engine = Engine.of(executor, workers)
        results = sweep.run_all(once, build_run.prepare, engine, progress)
    else:

        def shown(i: int) -> AbstractContextManager[Callable[[int, int], None] | None]:
            if progress is None:
                return nullcontext(None)
            return nullcontext(lambda run, users: progress(i * once[i][1].seeds + run, users))

        results = sweep.run_each(once, workers, shown)
    return [results[places[config]] for _, config, _ in runs]
