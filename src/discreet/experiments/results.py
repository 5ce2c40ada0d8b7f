"""Results of a run over several seeds, in memory and on disk.

The folder of a run has the files ``config.toml`` (the configuration that repeats the run), ``guarantee.json``
(the privacy statement), ``about.json`` (labels and reference values), and one file per seed, such as
``seeds/run-00007.parquet``. Every file is written under a temporary name and then renamed, so no file is
incomplete.

In memory, regrets are in the reward units of the environment. The Parquet files contain regrets for rewards
that are mapped to [0, 1]; divide them by ``reward_scale`` in ``about.json`` to obtain the environment's
units. The privacy guarantee does not protect regret, which is computed from the exact data of simulated
users.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.accounting.serialization import of_guarantee, same_up_to_rounding
from discreet.accounting.text.sentence_templates import OLDEST
from discreet.core import checks
from discreet.core.short_repr import brief
from discreet.experiments import statistics
from discreet.experiments.labels import privacy_words, said_options
from discreet.experiments.recipes import Recipe, recipe
from discreet.experiments.run_config import MADE_BY, flattened, identity
from discreet.experiments.seed_run import Floats, Ints, PreparedRun, SeedRun
from discreet.utils.atomic_file import write_aside
from discreet.utils.markdown_table import html
from discreet.utils.system import optional
from discreet.utils.toml_file import read_toml, to_toml

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from discreet.core.guarantee import Guarantee

_CONFIG, _GUARANTEE, _ABOUT, _SEEDS = "config.toml", "guarantee.json", "about.json", "seeds"
_SEED_FILE = re.compile(r"run-(\d{5,})\.parquet")


def _seeds(count: int) -> str:
    return f"{count} seed{'s' if count != 1 else ''}"


@dataclass(frozen=True)
class About:
    """Names, options, reference values and privacy guarantee of a run.

    Parameters
    ----------
    learner, privatizer, environment : names of the parts.
    label : short description of the run.
    optimal_value, uniform_value : exact expected returns of the optimal policy and of the uniform policy, in
        the environment's units of reward per episode.
    guarantee : privacy guarantee of the run.
    reward_scale : factor that converts regret in the environment's units of reward to regret for rewards
        mapped to [0, 1].
    options : options of learner and privatizer (``learner.X``, ``privatizer.X``) that differ from the preset,
        or that the user set.
    privacy_note : text about data that the guarantee does not cover (a prior).
    """

    __repr__ = brief

    learner: str
    privatizer: str
    environment: str
    label: str
    optimal_value: float
    uniform_value: float
    guarantee: Guarantee
    reward_scale: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    privacy_note: str | None = None

    @classmethod
    def of(
        cls, setup: PreparedRun, config: Mapping[str, Any] | None = None, label: str | None = None,
        described: Recipe | None = None,
    ) -> About:  # fmt: skip
        """Return the description of an experiment. The names come from ``config`` if it is given.

        label : label that the user chose; by default, the learner with its preset and options.

        described : result of :func:`~discreet.experiments.recipes.recipe` for this experiment, if it exists.
        """
        name, privatizer = type(setup.learner).__name__, type(setup.privatizer).__name__
        given, own = setup.label, label
        if config:
            options, preset, shown = config.get("options", {}), config.get("preset"), config["learner"]
            environment = f"{config['env']}{said_options(config.get('env_options', {}))}"
            own = label or config.get("label")
        else:
            found = described or recipe(setup, 0, 1)
            options, preset, shown = found.options, found.table.get("preset"), name
            environment = found.environment
        if given.startswith(name):
            given = f"{shown}{said_options(options, preset)}{given.removeprefix(name)}"
        else:
            options = {}
        if config:
            name, privatizer = config["learner"], config["privatizer"]
        back, steps = setup.mdp.reward_map, setup.mdp.horizon
        best, uniform = (back.original_return(v, steps) for v in (setup.optimal_value, setup.uniform_value))
        return cls(
            name, privatizer, environment, own or given, best, uniform, setup.guarantee, back.scale,
            dict(options), getattr(setup, "privacy_note", None),
        )  # fmt: skip

    @property
    def statement(self) -> str:
        """Privacy guarantee as text, followed by ``privacy_note``."""
        return " ".join(filter(None, (self.guarantee.statement, self.privacy_note)))

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values, without the guarantee."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "guarantee"}
        return fields if self.privacy_note else {k: v for k, v in fields.items() if k != "privacy_note"}


@dataclass(frozen=True)
class Summary:
    """Summary of one result, with cumulative regrets in the environment's units of reward."""

    learner: str
    privatizer: str
    label: str
    trust: str
    epsilon: float | None
    statement: str
    mean: statistics.Interval
    median: statistics.Interval
    uniform_regret: float
    late_share: float
    seconds: float

    @property
    def verdict(self) -> str:
        """Text that compares the regret of the last quarter of users with the uniform policy's regret."""
        share = f"{100 * self.late_share:.0f} % of the uniform policy's regret per user in the last quarter"
        if self.late_share > 0.9:
            return f"nothing learned: {share}"
        if self.late_share > 0.5:
            return f"hardly learning: {share}"
        return f"learning: {share}"

    def __str__(self) -> str:
        return (
            f"{self.label}: final regret mean {self.mean} ({self.mean.level:.0%} {self.mean.method}), "
            f"median {self.median} ({self.median.method}), {_seeds(self.mean.count)}; "
            f"uniform policy {statistics.number(self.uniform_regret)}; {self.verdict}; "
            f"{self.seconds:.3g} s\n{self.statement}"
        )


@dataclass(frozen=True, eq=False)
class Result:
    """Result of a run over several seeds.

    Parameters
    ----------
    episodes : (M,) numbers of users at which regret was recorded, log-spaced; the last number is K.
    regret, gap_regret : (seeds, M) cumulative regret, in the environment's units of reward.
    runs : (seeds,) indices of the repetitions, ascending.
    seconds_per_seed : (seeds,) duration of each repetition, in seconds.
    seed : seed of the repetitions.
    about : names, reference values, guarantee.
    config : TOML table that repeats the run or, if this is impossible, describes the run's Python objects.
    played : results of the single repetitions. Their regrets are for rewards mapped to [0, 1].
    """

    episodes: Ints
    regret: Floats
    gap_regret: Floats
    runs: Ints
    seconds_per_seed: Floats
    seed: int
    about: About
    config: Mapping[str, Any]
    played: tuple[SeedRun, ...] = ()

    @classmethod
    def from_runs(
        cls, setup: PreparedRun, seed: int, runs: Iterable[SeedRun],
        config: Mapping[str, Any] | None = None, label: str | None = None,
    ) -> Result:  # fmt: skip
        """Create the result of the repetitions ``runs`` of the experiment ``setup`` under ``seed``.

        Parameters
        ----------
        config : TOML table that repeats these repetitions; by default, it is derived from the objects.
        label : name of the run in figures and tables.
        """
        found = list(runs)
        described = None if config else recipe(setup, seed, max(1, len(found)))
        about = About.of(setup, config, label, described)
        table = described.table if described else dict(config or {})
        return cls.collect(about, seed, found, table if label is None else {**table, "label": label})

    @classmethod
    def collect(cls, about: About, seed: int, runs: Iterable[SeedRun], config: Mapping[str, Any]) -> Result:
        """Combine repetitions, sorted by index, into one result.

        Raises ``ValueError`` if ``runs`` is empty, if a repetition occurs twice, or if the recorded numbers
        of users differ.
        """
        ordered = sorted(runs, key=lambda run: run.run)
        if not ordered:
            raise ValueError("runs = []: must hold at least one repetition")
        indices = [run.run for run in ordered]
        if len(set(indices)) < len(indices):
            raise ValueError(f"runs = {indices}: every repetition must be there once")
        episodes = np.asarray(ordered[0].episodes, np.int64)
        for run in ordered:
            shapes = {np.shape(run.episodes), np.shape(run.regret), np.shape(run.gap_regret)}
            if shapes != {episodes.shape} or not np.array_equal(run.episodes, episodes):
                raise ValueError(f"run {run.run} recorded other episodes than run {indices[0]}")
        return cls(
            episodes,
            np.array([run.regret for run in ordered], np.float64) / about.reward_scale,
            np.array([run.gap_regret for run in ordered], np.float64) / about.reward_scale,
            np.array(indices, np.int64),
            np.array([run.seconds for run in ordered], np.float64),
            seed,
            about,
            dict(config),
            tuple(ordered),
        )

    # ------------------------------------------------------------------ names, guarantee and values
    @property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee of the run: trust model, true epsilon, and a statement as text."""
        return self.about.guarantee

    @property
    def learner(self) -> str:
        """Name of the learner."""
        return self.about.learner

    @property
    def privatizer(self) -> str:
        """Name of the privatizer."""
        return self.about.privatizer

    @property
    def environment(self) -> str:
        """Name of the environment."""
        return self.about.environment

    @property
    def label(self) -> str:
        """Short name of the run for figures and tables."""
        return self.about.label

    @property
    def optimal_value(self) -> float:
        """Expected return of the optimal policy, in the environment's units of reward per episode."""
        return self.about.optimal_value

    @property
    def uniform_value(self) -> float:
        """Expected return of the policy that always selects admissible actions with equal probability."""
        return self.about.uniform_value

    @property
    def users(self) -> int:
        """Number of users K."""
        return int(self.episodes[-1])

    @property
    def seconds(self) -> float:
        """Sum of the durations of all repetitions, in seconds."""
        return float(self.seconds_per_seed.sum())

    @cached_property
    def final_regret(self) -> Floats:
        """(seeds,) cumulative pseudo-regret after K users, in the environment's units of reward."""
        return np.ascontiguousarray(self.regret[:, -1])

    @property
    def uniform_regret(self) -> float:
        """Regret of the uniform policy after K users, the reference in figures and tables."""
        return self.users * (self.optimal_value - self.uniform_value)

    @property
    def late_share(self) -> float:
        """Mean regret per user in the last quarter of users, divided by that of the uniform policy."""
        start = int(np.searchsorted(self.episodes, 0.75 * self.users, side="right")) - 1
        before = (0, np.zeros(len(self.runs))) if start < 0 else (self.episodes[start], self.regret[:, start])
        users = self.users - int(before[0])
        lost = float((self.final_regret - before[1]).mean())
        gap = self.optimal_value - self.uniform_value
        if users == 0 or gap <= 0:
            return float("nan")
        return lost / users / gap

    def summary(self) -> Summary:
        """Return a summary: mean and median of final regret with intervals, reference values, duration."""
        return Summary(
            self.learner,
            self.privatizer,
            self.label,
            self.guarantee.trust,
            self.guarantee.epsilon,
            self.about.statement,
            statistics.mean_interval(self.final_regret),
            statistics.median_interval(self.final_regret),
            self.uniform_regret,
            self.late_share,
            self.seconds,
        )

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        seeds = _seeds(len(self.runs))
        return f"<Result {self.label}: {seeds} of {self.users} users on {self.environment}>"

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the summary as a table, followed by the guarantee."""
        s = self.summary()
        rows = [
            ("", self.label),
            ("environment", f"{self.environment}, {self.users:,} users, {_seeds(s.mean.count)}"),
            ("privacy", privacy_words(self.guarantee)),
            ("final regret, mean", str(s.mean)),
            ("final regret, median", str(s.median)),
            ("uniform policy", statistics.number(s.uniform_regret)),
            ("", s.verdict),
        ]
        return f"{html(rows, head=False)}<p>{escape(s.statement)}</p>"

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of JSON values, as ``discreet run --json`` prints it."""
        summary = self.summary()
        return {
            "learner": self.learner,
            "privatizer": self.privatizer,
            "environment": self.environment,
            "label": self.label,
            "episodes": self.users,
            "seed": self.seed,
            "seeds": len(self.runs),
            "final_regret": self.final_regret.tolist(),
            "final_gap_regret": self.gap_regret[:, -1].tolist(),
            "mean": summary.mean.to_json(),
            "median": summary.median.to_json(),
            "optimal_value": self.optimal_value,
            "uniform_value": self.uniform_value,
            "uniform_regret": self.uniform_regret,
            "late_share": None if np.isnan(self.late_share) else self.late_share,
            "seconds": self.seconds,
            "guarantee": self.guarantee.to_dict(),
            **({"privacy_note": self.about.privacy_note} if self.about.privacy_note else {}),
            "config": dict(self.config),
        }

    def to_pandas(self) -> pd.DataFrame:
        """Return the curves as a data frame with one row for each repetition and recorded number of users.

        * Columns of the curve: run, episode, regret, gap_regret (in the environment's units of reward).
        * Columns of the run: label, learner, preset, options, privatizer and environment.
        * Columns of the guarantee: the true epsilon and delta (NaN without a guarantee).

        This method needs pandas (``pip install 'discreet[pandas]'``).
        """
        pandas: Any = optional("pandas", "pandas", "to_pandas")
        seeds, recorded = self.regret.shape
        private = self.guarantee.epsilon is not None
        frame: pd.DataFrame = pandas.DataFrame(
            {
                "run": np.repeat(self.runs, recorded),
                "episode": np.tile(self.episodes, seeds),
                "regret": self.regret.ravel(),
                "gap_regret": self.gap_regret.ravel(),
                "label": self.label,
                "learner": self.learner,
                "preset": self.config.get("preset", "default"),
                "options": said_options(self.about.options).strip(" ()"),
                "privatizer": self.privatizer,
                "environment": self.environment,
                "epsilon": self.guarantee.epsilon if private else np.nan,
                "delta": self.guarantee.delta if private else np.nan,
            }
        )
        return frame

    def plot(
        self,
        path: Path | str | None = None,
        *others: Result,
        scale: str = "log",
        style: Path | str | None = None,
        columns: int | None = None,
        journal: str = "nature",
    ) -> Figure:
        """Plot the cumulative regret of this result and of ``others``.

        If ``path`` is given, the figure is saved. See :func:`discreet.experiments.regret_figure` for
        ``scale``, ``style``, ``columns`` and ``journal``.
        """
        from discreet.experiments.plots import regret_figure

        return regret_figure(
            [self, *others], path, scale=scale, style=style, columns=columns, journal=journal
        )

    def paired(self, other: Result) -> statistics.Paired:
        """Compare the final regrets of this result and another result, seed by seed.

        Returns statistics of the differences (this result minus the other) over the seeds that both results
        have. Raises ``ValueError`` unless both results have the same environment (name and optimal value), K
        and seed.
        """
        if not isinstance(other, Result):
            raise ValueError(f"other = {checks.said(other)}: must be a Result")
        for name in ("environment", "optimal_value", "users", "seed"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"other.{name} = {theirs!r}: must be {mine!r} to pair seed by seed")
        common, here, there = np.intersect1d(self.runs, other.runs, return_indices=True)
        if common.size == 0:
            raise ValueError("other has no repetition in common: pairs need the same runs of the same seed")
        return statistics.paired(self.final_regret[here], other.final_regret[there])

    # ------------------------------------------------------------------ on disk
    def save(self, path: Path | str) -> Path:
        """Write the result to the folder ``path`` and return the path.

        Raises ``ValueError`` if the folder holds another run.
        """
        folder = RunFolder.create(Path(path), {**self.config, "seeds": len(self.runs)}, self.about)
        for run in self.played:
            folder.write(run)
        return folder.path

    @classmethod
    def load(cls, path: Path | str, seeds: int | None = None) -> Result:
        """Read the finished repetitions in ``path``, or only those among the first ``seeds``.

        Raises ``ValueError`` if ``path`` is not a result folder, or if none of its seeds is finished.
        """
        folder = RunFolder(Path(path))
        table, about = folder.table(), folder.about()
        runs = [run for run in folder.runs() if seeds is None or run < seeds]
        if not runs:
            raise ValueError(f"{path}: holds no finished seed yet")
        return cls.collect(about, int(table.get("seed", 0)), (folder.read(run) for run in runs), table)


# -------------------------------------------------------------------------------------- folders
@dataclass(frozen=True)
class RunFolder:
    """Folder that holds the files of one run."""

    path: Path

    @classmethod
    def create(cls, path: Path, table: Mapping[str, Any], about: About) -> RunFolder:
        """Create the folder, or open an existing folder with the same configuration, code and guarantee.

        Raises ``ValueError`` if the folder belongs to another run.
        """
        folder = cls(path)
        if path.exists() and not path.is_dir():
            raise ValueError(f"out = {str(path)!r}: is a file, must be a folder")
        # look for repetitions first, because another process writes them after the other files
        stored = folder.runs()
        if (path / _CONFIG).exists():
            there = folder.table()
            if "label" in there and "label" not in table:  # keep the label that the user chose earlier
                table, about = {**table, "label": there["label"]}, replace(about, label=there["label"])
            _same_run(path, there, table)
            kept = folder.guarantee_table()
            _same_guarantee(path, kept, about.guarantee)
            most = max(int(one.get("seeds", 1)) for one in (there, table))
            if (
                most == int(there.get("seeds", 1))
                and kept is not None
                and there.get("label") == table.get("label")
            ):
                return folder
            table = {**table, "seeds": most}
        elif stored:
            raise ValueError(f"out = {str(path)!r}: holds seeds but no {_CONFIG}: choose another folder")
        try:
            (path / _SEEDS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"out = {str(path)!r}: must be a writable folder ({error.strerror})") from None
        write_aside(path / _GUARANTEE, _json_bytes(about.guarantee.to_dict()))
        write_aside(path / _ABOUT, _json_bytes(about.to_json()))
        write_aside(path / _CONFIG, to_toml(table).encode())
        return folder

    def table(self) -> dict[str, Any]:
        """Return the stored configuration. Raises ``ValueError`` if this is not a result folder."""
        if not (self.path / _CONFIG).is_file():
            raise ValueError(f"{self.path}: is not a result folder (it has no {_CONFIG})")
        return flattened(read_toml(self.path / _CONFIG))

    def guarantee_table(self) -> dict[str, Any] | None:
        """Return the stored guarantee; None if the folder has none."""
        return _read_json(self.path / _GUARANTEE)

    def about(self) -> About:
        """Return the stored names and reference values together with the guarantee."""
        from discreet.core.guarantee import Guarantee

        stored, guarantee = _read_json(self.path / _ABOUT), self.guarantee_table()
        if stored is None or guarantee is None:
            raise ValueError(f"{self.path}: is incomplete, it lacks {_ABOUT} or {_GUARANTEE}")
        table = flattened({"options": stored.pop("options", {})})  # this call converts lists back to tuples
        return About(**stored, **table, guarantee=Guarantee.from_dict(guarantee))

    @property
    def seeds(self) -> Path:
        """Path of the subfolder with the files of the repetitions."""
        return self.path / _SEEDS

    def new_of(self, others: Sequence[RunFolder]) -> dict[int, RunFolder]:
        """Return the repetitions that other folders of the same run have and this folder lacks.

        The result maps the index of each such repetition to a folder that contains it. Raises ``ValueError``
        if a folder belongs to another run or cannot be read, or if two folders have different numbers for the
        same repetition.
        """
        have: dict[int, RunFolder] = dict.fromkeys(self.runs(), self)
        for other in others:
            if other.path.resolve() == self.path.resolve():
                raise ValueError(f"{other.path}: must not be merged with itself")
            first = self if (self.path / _CONFIG).exists() else others[0]
            _same_run(first.path, first.table(), other.table())
            _same_guarantee(first.path, first.guarantee_table(), other.about().guarantee)
            for run in other.runs():
                found, kept = other.read(run), have.setdefault(run, other)
                if kept is not other and not kept.read(run).agrees(found):
                    raise ValueError(f"{other.path}: run {run} has other numbers than in {kept.path}")
        return {run: folder for run, folder in have.items() if folder is not self}

    def take_over(self, others: Sequence[RunFolder], new: Mapping[int, RunFolder]) -> None:
        """Copy the repetitions that :meth:`new_of` found into this folder."""
        tables = [one.table() for one in (self, *others) if (one.path / _CONFIG).exists()]
        most = max(int(table.get("seeds", 1)) for table in tables)
        mine = RunFolder.create(self.path, {**tables[-1], "seeds": most}, others[-1].about())
        for run, folder in new.items():
            mine.write(folder.read(run))

    def runs(self) -> tuple[int, ...]:
        """Return the indices of the finished repetitions."""
        folder = self.path / _SEEDS
        names = (_SEED_FILE.fullmatch(entry.name) for entry in folder.iterdir()) if folder.is_dir() else ()
        return tuple(sorted(int(name.group(1)) for name in names if name))

    def seed_path(self, run: int) -> Path:
        """Return the path of a repetition's file."""
        return self.path / _SEEDS / f"run-{run:05d}.parquet"

    def write(self, seed_run: SeedRun) -> None:
        """Store one repetition atomically."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        def column(values: Any, kind: Any, dtype: Any) -> Any:
            # The column is made from bytes, because pa.array imports pandas if it is installed, which takes
            # 0.3 s.
            made = np.ascontiguousarray(values, dtype)
            return pa.Array.from_buffers(kind, made.size, [None, pa.py_buffer(made)])

        columns = {
            "run": column(np.full(len(seed_run.episodes), seed_run.run), pa.int64(), np.int64),
            "episode": column(seed_run.episodes, pa.int64(), np.int64),
            "regret": column(seed_run.regret, pa.float64(), np.float64),
            "gap_regret": column(seed_run.gap_regret, pa.float64(), np.float64),
        }
        table = pa.table(columns).replace_schema_metadata(
            {b"discreet.seconds": repr(seed_run.seconds).encode()}
        )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        write_aside(self.seed_path(seed_run.run), sink.getvalue().to_pybytes())

    def read(self, run: int) -> SeedRun:
        """Read one finished repetition.

        Raises ``ValueError`` with the name of the file if the file cannot be read.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.seed_path(run)
        try:
            table = pq.read_table(path, partitioning=None)
            seconds = float(table.schema.metadata[b"discreet.seconds"])
            columns = {name: table[name].to_numpy() for name in ("run", "episode", "regret", "gap_regret")}
        except (OSError, pa.ArrowException, KeyError, TypeError) as error:
            raise ValueError(f"{path}: cannot be read ({error}); delete it to run the seed again") from None
        if not (columns["run"] == run).all():
            raise ValueError(f"{path}: holds run {columns['run'][0]}, must hold run {run}")
        return SeedRun(run, columns["episode"], columns["regret"], columns["gap_regret"], seconds)


def _same_run(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    old, new = identity(there), identity(here)
    differing = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    if not differing:
        return
    if old.get("form") != new.get("form"):
        made = {None: "by names (of the registry)"}
        there_, here_ = (made.get(table.get("form"), "from Python objects") for table in (old, new))
        raise ValueError(
            f"out = {str(path)!r}: holds a run made {there_}, this one is made {here_}: choose another folder"
        )
    said = "; ".join(
        f"{key} = {_value(old, key)} there, {_value(new, key)} here" for key in differing[:4]
    ) + (f"; and {len(differing) - 4} more" if len(differing) > 4 else "")
    what = (
        "results of other compiled code" if differing == [f"{MADE_BY}.kernels"] else "another configuration"
    )
    raise ValueError(f"out = {str(path)!r}: holds {what} ({said}): choose another folder")


def _same_guarantee(path: Path, there: Mapping[str, Any] | None, here: Guarantee) -> None:
    """Raise ``ValueError`` unless a folder's guarantee equals this guarantee."""
    earlier = of_guarantee(here, OLDEST)
    older = {name: value for name, value in earlier.items() if name != "holds_if_seed_is_guessed"}
    known = (here.to_dict(), earlier, older)
    if there is not None and not any(same_up_to_rounding(one, there) for one in known):
        raise ValueError(f"out = {str(path)!r}: holds results under another guarantee: choose another folder")


def _value(table: Mapping[str, Any], key: str) -> str:
    return checks.said(table[key]) if key in table else "not given"


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None
    return value
