"""Sweeps: grids of run configurations, with one result folder per run, and tables that compare the results.

A sweep is a TOML file with the keys of a run configuration. The value of a key can be a list of values; the
sweep runs all combinations of the values in these lists. Each ``[[runs]]`` table overrides the settings above
it, and can contain more lists::

    title = "private and non-private exploration"
    env = "riverswim"
    episodes = 20000
    seeds = 10

    [[runs]]
    learner = "ucb-vi-bernstein"

    [[runs]]
    learner = "dp-ucbvi"
    privatizer = ["central", "local"]
    epsilon = [1.0, 10.0]

If the value of an option is itself a list, write it as a list of lists. A ``label`` names the runs of its
``[[runs]]`` table in figures and tables.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.core import checks
from discreet.experiments import statistics
from discreet.experiments.engine import Engine, Job, results
from discreet.experiments.file_lock import Claims, shared
from discreet.experiments.labels import privacy_words, short_labels
from discreet.experiments.results import About, Result, RunFolder
from discreet.experiments.run_config import MADE_BY, RunConfig, check_label, made_by, table_key, tuned
from discreet.experiments.seed_run import SeedRun
from discreet.experiments.worker import Play
from discreet.utils.atomic_file import write_aside
from discreet.utils.markdown_table import html, markdown
from discreet.utils.toml_file import read_toml

if TYPE_CHECKING:
    from discreet.experiments.simulate import Setup

Progress = Callable[[int, int], None]
_ORDER = "sweep.json"


# -------------------------------------------------------------------------------------- one run
class _Pending:
    """Repetitions of one configuration: the finished ones, and those for which this process must wait.

    chosen : function of a repetition's index, which returns False for repetitions of other processes.
    """

    def __init__(
        self, setup: Setup, config: RunConfig, out: Path | None, chosen: Callable[[int], bool] | None
    ) -> None:
        self.setup, self.config = setup, config
        self.table = {**config.to_table(), MADE_BY: made_by()}
        self.folder = None if out is None else RunFolder.create(out, self.table, About.of(setup, self.table))
        self.claims = None if self.folder is None else Claims()
        self.done: dict[int, SeedRun] = {}
        self.missing = [r for r in range(config.seeds) if chosen is None or chosen(r)]
        self.part = chosen is not None

    def read(self) -> list[int]:
        """Load all finished repetitions in the folder.

        Returns the indices of the new repetitions for this process.
        """
        stored = () if self.folder is None else self.folder.runs()
        wanted = self.missing if not self.part else range(self.config.seeds)
        if self.folder is not None:
            self.done |= {r: self.folder.read(r) for r in stored if r in wanted and r not in self.done}
        new = [r for r in self.missing if r in self.done]
        self.missing = [r for r in self.missing if r not in self.done]
        return new

    def take(self, run: int) -> bool:
        """Claim repetition ``run``; return True if this process must simulate the repetition now."""
        if self.folder is None or self.claims is None:
            return True
        wanted = self.folder.seed_path(run)
        if not self.claims.take(wanted):
            return False
        if wanted.exists():  # another process has just finished this repetition
            self.claims.drop(wanted)
            return False
        return True

    def keep(self, seed_run: SeedRun) -> None:
        """Store a finished repetition, and remove this process's claim on it."""
        if self.folder is not None and self.claims is not None:
            self.folder.write(seed_run)
            self.claims.drop(self.folder.seed_path(seed_run.run))
        self.done[seed_run.run] = seed_run
        self.missing = [r for r in self.missing if r != seed_run.run]

    def result(self) -> Result:
        """Return the result of all finished repetitions."""
        return Result.from_runs(self.setup, self.config.seed, self.done.values(), self.table)


def run(
    setup: Setup,
    config: RunConfig,
    out: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    chosen: Callable[[int], bool] | None = None,
) -> Result:
    """Run the seeds that are missing in the folder ``out``, and store each seed when it finishes.

    Several processes with the same ``out`` share the work.

    Parameters
    ----------
    setup : experiment that :func:`discreet.experiments.build_run.prepare` made from ``config``.
    out : result folder; None: results are not stored.
    workers : number of parallel runs.
    progress : function that is called with (run, number of users simulated so far), also for stored seeds.
    chosen : function of a repetition's index; only repetitions for which it returns True are run. The result
        also contains all repetitions that are already in the folder.

    Raises
    ------
    ValueError
        If ``out`` holds another run.
    """
    found = _run(setup, config, out, workers, progress, chosen, wait=True)
    assert found is not None
    return found


def run_each(
    runs: Sequence[tuple[Setup, RunConfig, Path | None]],
    workers: int | None = None,
    shown: Callable[[int], AbstractContextManager[Progress | None]] = lambda i: nullcontext(None),
    chosen: Callable[[int, int], bool] | None = None,
) -> list[Result]:
    """Call :func:`run` for each configuration in turn, in this process and its workers.

    ``shown(i)`` returns a context manager that yields the progress callback of configuration i.
    :func:`run_all` describes ``chosen``.
    """
    found: dict[int, Result] = {}
    for wait in (False, True):
        for i, (setup, config, out) in enumerate(runs):
            part = None if chosen is None else partial(chosen, i)
            if i in found or not any(part is None or part(run) for run in range(config.seeds)):
                continue
            with shown(i) as progress:
                one = _run(setup, config, out, workers, progress, part, wait)
            if one is not None:
                found[i] = one
    return [found[i] for i in sorted(found)]


def _run(
    setup: Setup, config: RunConfig, out: Path | None, workers: int | None, progress: Progress | None,
    chosen: Callable[[int], bool] | None, wait: bool,
) -> Result | None:  # fmt: skip
    """Run the missing seeds of one configuration, as :func:`run` does.

    Returns None if ``wait`` is False and other processes have claimed all missing seeds.
    """
    from discreet.experiments.simulate import iterate_runs

    if workers is not None:
        checks.integer("workers", workers, 1)
    one = _Pending(setup, config, out, chosen)

    def once() -> Iterator[tuple[int, SeedRun]]:
        found = iterate_runs(setup, config.seed, one.missing, workers, progress, take=one.take)
        with closing(found) as fresh:  # type: ignore[type-var]
            yield from ((0, seed_run) for seed_run in fresh)

    def report(_: int, run: int) -> None:
        if progress is not None:
            progress(run, config.episodes)

    shared([one], once, report, wait)
    return None if one.missing else one.result()


def run_all(
    runs: Sequence[tuple[Setup, RunConfig, Path | None]],
    build: Callable[[RunConfig], Setup],
    engine: Engine,
    progress: Progress | None = None,
    chosen: Callable[[int, int], bool] | None = None,
) -> list[Result]:
    """Run many configurations on one engine, whose workers create the experiments with ``build``.

    Parameters
    ----------
    runs : (experiment, configuration, folder) of each run.
    build : function that creates the experiment of a configuration.
    engine : engine that executes the runs.
    progress : function that is called with (number of the run, number of users simulated so far).
    chosen : function of (index of the configuration, index of the repetition); only pairs for which it
        returns True are run. A configuration without any finished repetition is left out of the results.
    """
    pending = [
        _Pending(setup, config, out, None if chosen is None else partial(chosen, i))
        for i, (setup, config, out) in enumerate(runs)
    ]
    engine.check(made_by())
    numbers: dict[tuple[int, int], int] = {}

    def report(i: int, run: int) -> None:
        if progress is not None:
            progress(numbers.setdefault((i, run), len(numbers)), pending[i].config.episodes)

    def once() -> Iterator[tuple[int, SeedRun]]:
        jobs = [
            Job(Play(build, one.config, one.config.seed), tuple(one.missing), one.config.name)
            for one in pending
        ]
        with closing(results(engine, jobs, lambda i, run: pending[i].take(run))) as fresh:
            for i, seed_run in fresh:
                report(i, seed_run.run)
                yield i, seed_run

    shared(pending, once, report)
    return [one.result() for one in pending if one.done]


def shard(text: str) -> Callable[[int, int], bool]:
    """Parse the text "i/n", and return a function that selects the i-th of n equal parts of a sweep.

    The function takes (index of the configuration, index of the repetition), and returns True if this pair
    belongs to the part. Raises ``ValueError`` unless 1 <= i <= n.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    own, parts = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= own <= parts:
        raise ValueError(f"shard = {text!r}: must be i/n, the i-th of n parts, such as 3/8")
    return lambda config, run: (config + run) % parts == own - 1


def merge(folders: Sequence[Path], out: Path) -> int:
    """Copy the seeds in folders of runs or of sweeps into the folder ``out``.

    Returns the number of seeds that were not in ``out`` before. The files of a single run are copied to
    ``out`` itself, and the runs of sweeps to subfolders of ``out`` with the same names as in the sweep.

    Raises
    ------
    ValueError
        If a folder holds no results, if two folders hold different runs under the same name, or if they hold
        different numbers for the same seed.
    """
    plan: dict[Path, list[RunFolder]] = {}
    orders: list[Path] = []
    for folder in folders:
        if (folder / "config.toml").is_file():
            plan.setdefault(out, []).append(RunFolder(folder))
            continue
        inside = sorted(path.parent for path in folder.glob("*/config.toml"))
        if not inside:
            raise ValueError(f"{folder}: is not a result folder and contains none (no config.toml)")
        for path in inside:
            plan.setdefault(out / path.name, []).append(RunFolder(path))
        if (folder / _ORDER).is_file():
            orders.append(folder / _ORDER)
    new = [(RunFolder(to), sources, RunFolder(to).new_of(sources)) for to, sources in plan.items()]
    if orders:
        out.mkdir(parents=True, exist_ok=True)
    for order in orders:
        _merge_order(order, out / _ORDER)
    for to, sources, found in new:
        to.take_over(sources, found)
    return sum(len(found) for *_, found in new)


def _merge_order(source: Path, to: Path) -> None:
    table = json.loads(source.read_text(encoding="utf-8"))
    if to.is_file():
        there = json.loads(to.read_text(encoding="utf-8"))
        table = {**there, "runs": list(dict.fromkeys([*there["runs"], *table["runs"]]))}
    write_aside(to, (json.dumps(table, indent=2) + "\n").encode())


# -------------------------------------------------------------------------------------- sweeps
@dataclass(frozen=True)
class Sweep:
    """Sequence of runs, in the order of tables and figures."""

    title: str
    runs: tuple[RunConfig, ...]

    @classmethod
    def from_toml(cls, path: Path) -> Sweep:
        """Read a sweep file. Raises ``ValueError``, with the name of the setting, if a setting is invalid."""
        table = tuned(read_toml(path), path.parent)
        if isinstance(table.get("runs"), list):
            runs = [tuned(one, path.parent) if isinstance(one, Mapping) else one for one in table["runs"]]
            table["runs"] = runs
        return cls.from_table(table, path.stem)

    @classmethod
    def from_table(cls, table: Mapping[str, Any], title: str = "sweep") -> Sweep:
        """Return the sweep described by a TOML table."""
        base = {key: value for key, value in table.items() if key not in ("title", "runs")}
        parts = table.get("runs", [{}])
        if not isinstance(parts, list) or not parts or not all(isinstance(part, Mapping) for part in parts):
            raise ValueError(f"runs = {parts!r}: must be tables, [[runs]]")
        configs = [config for part in parts for config in grid(_merged(base, part))]
        return cls(str(table.get("title", title)), tuple(configs))

    def resolved(self, resolve: Callable[[RunConfig], RunConfig]) -> Sweep:
        """Return the sweep with every configuration resolved by ``resolve``, and without duplicates."""
        return Sweep(self.title, tuple(dict.fromkeys(resolve(config) for config in self.runs)))


def _merged(base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**{key: value for key, value in base.items() if key not in part}, **part}
    for key in ("options", "env_options"):
        if key in base or key in part:
            merged[key] = {**base.get(key, {}), **part.get(key, {})}
    return merged


def grid(table: Mapping[str, Any]) -> list[RunConfig]:
    """Return all combinations of the values in a table's lists; the last list varies fastest."""
    axes: list[tuple[tuple[str, ...], list[Any]]] = []
    if "label" in table:
        check_label(table["label"])  # a label names a part of the sweep, so it cannot be a list
    _axes(table, (), axes)
    for path, values in axes:
        if not values:
            raise ValueError(f"{'.'.join(path)} = []: must hold at least one value")
    configs = []
    for point in itertools.product(*(values for _, values in axes)):
        filled = _copy(table)
        for (path, _), value in zip(axes, point, strict=True):
            inner = filled
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
        configs.append(RunConfig.from_table(filled))
    return configs


def _axes(
    table: Mapping[str, Any], path: tuple[str, ...], found: list[tuple[tuple[str, ...], list[Any]]]
) -> None:
    for key, value in table.items():
        if isinstance(value, Mapping):
            _axes(value, (*path, key), found)
        elif isinstance(value, list) and key != "plugins":
            found.append(((*path, key), value))


def _copy(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in table.items()}


def folder_name(config: RunConfig) -> str:
    """Return a readable folder name that is unique for the configuration and the compiled code."""
    return config.name.removesuffix(config.key) + table_key({**config.to_table(), MADE_BY: made_by()})


def note_order(out: Path, sweep: Sweep) -> None:
    """Store the title of a sweep and the order of its folders."""
    content = {"title": sweep.title, "runs": [folder_name(config) for config in sweep.runs]}
    out.mkdir(parents=True, exist_ok=True)
    write_aside(out / _ORDER, (json.dumps(content, indent=2) + "\n").encode())


def load_results(paths: Sequence[Path]) -> list[Result]:
    """Load the results in folders of runs and of sweeps, without duplicates.

    Raises ``ValueError`` if one of ``paths`` contains no result folder, or if no result is finished.
    """
    results: list[Result] = []
    for path in {path.resolve(): path for path in paths}.values():
        if (path / _ORDER).is_file():
            names = json.loads((path / _ORDER).read_text(encoding="utf-8"))["runs"]
            results += [Result.load(path / name) for name in names if (path / name).is_dir()]
        elif (path / "config.toml").is_file() or not path.is_dir():
            results.append(Result.load(path))
        else:
            inside = sorted(file.parent for file in path.glob("*/config.toml"))
            if not inside:
                raise ValueError(f"{path}: is not a result folder and contains none (no config.toml)")
            results += [Result.load(folder) for folder in inside]
    if not results:
        raise ValueError("no finished results to read")
    return results


# ----------------------------------------------------------------------------------- comparing
@dataclass(frozen=True)
class BaselineComparison:
    """Comparison of the final regret of one result with that of the baseline, seed by seed."""

    label: str
    privacy: str
    mean: statistics.Interval
    paired: statistics.Paired | None  # This field is None for the baseline itself.
    guarantee: str = ""  # First sentence of the privacy statement.

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary of JSON values."""
        return {
            "label": self.label,
            "privacy": self.privacy,
            "mean": self.mean.to_json(),
            "paired": None if self.paired is None else self.paired.to_json(),
        }


class Comparisons(list[BaselineComparison]):
    """Comparisons of several results with one baseline."""

    def _repr_html_(self) -> str:
        """Return the table as HTML for notebooks, with a caption that explains the numbers in brackets."""
        return f"{html([HEAD, *comparison_rows(self)])}<p>{escape(caption(self))}</p>"


def compare(results: Sequence[Result], baseline: int = 0) -> Comparisons:
    """Compare the final regret of each result with that of ``results[baseline]``, seed by seed.

    Raises ``ValueError`` if ``results`` has fewer than two entries, or if the results have different users.
    """
    if len(results) < 2:
        raise ValueError(f"results: {len(results)} given, must be at least two to compare")
    checks.integer("baseline", baseline, 0, len(results) - 1)
    reference = results[baseline]
    return Comparisons(
        BaselineComparison(
            label,
            privacy_words(result.guarantee),
            statistics.mean_interval(result.final_regret),
            None if result is reference else result.paired(reference),
            re.split(r"(?<=\.) (?=[A-Z])", result.guarantee.statement, maxsplit=1)[0],
        )
        for result, label in zip(results, short_labels(results)[0], strict=True)
    )


HEAD = ("learner", "privacy", "final regret, mean", "difference, mean", "difference, median", "seeds", "p")


def comparison_rows(comparisons: Sequence[BaselineComparison]) -> list[tuple[str, ...]]:
    """Return the rows of the comparison table. Each row is a tuple of seven strings, for the columns in
    :data:`HEAD`.
    """
    rows = []
    for c in comparisons:
        if c.paired is None:
            rest: tuple[str, ...] = ("baseline", "", str(c.mean.count), "")
        else:
            p = "—" if c.paired.p_value is None else f"{c.paired.p_value:.2g}"
            rest = (str(c.paired.mean), str(c.paired.median), str(c.paired.mean.count), p)
        rows.append((c.label, c.privacy, str(c.mean), *rest))
    return rows


def caption(comparisons: Sequence[BaselineComparison]) -> str:
    """Return a caption of the comparison table that explains the brackets, the differences and p."""
    paired = next((c.paired for c in comparisons if c.paired is not None), None)
    median = "order statistics" if paired is None else paired.median.method
    tests = dict.fromkeys(
        statistics.name_of_test(c.paired.mean.count) for c in comparisons if c.paired is not None
    )
    return (
        "Brackets: 95 % intervals (means: Student's t; medians: "
        f"{median}). Differences are paired by seed; p: two-sided {' or '.join(tests) or 'sign flips'}."
    )


def to_markdown(comparisons: Sequence[BaselineComparison]) -> str:
    """Return the comparison table in Markdown, followed by its caption."""
    rows = ([cell.replace("|", "/") for cell in row] for row in comparison_rows(comparisons))
    return f"{markdown([HEAD, *rows])}\n\n{caption(comparisons)}"


_LATEX = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "μ": r"$\mu$",
    "ρ": r"$\rho$",
    "—": "---",
}


_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")


def _latex(text: str, numbers: bool = True) -> str:
    """Return the text with LaTeX's special characters escaped.

    If ``numbers`` is True, siunitx formats numbers.
    """
    found, at = [], 0
    for number in _NUMBER.finditer(text) if numbers else ():
        found.append("".join(_LATEX.get(ch, ch) for ch in text[at : number.start()]))
        found.append(rf"\num{{{number.group().replace(',', '').replace('e-0', 'e-')}}}")
        at = number.end()
    return "".join([*found, *(_LATEX.get(ch, ch) for ch in text[at:])])


def to_latex(comparisons: Sequence[BaselineComparison], world: str = "") -> str:
    """Return the comparison table in LaTeX, with its caption. The document must load booktabs and siunitx.

    Parameters
    ----------
    world : description of the environment, for the caption: ``"20,000 users on riverswim"``.
    """
    rows = [
        " & ".join(_latex(cell, numbers=i > 0) for i, cell in enumerate(row)) + r" \\"
        for row in comparison_rows(comparisons)
    ]
    head = " & ".join(map(_latex, HEAD)) + r" \\"
    claims = dict.fromkeys(c.guarantee for c in comparisons if c.guarantee)
    counts = sorted({c.mean.count for c in comparisons})
    few = f"{counts[0]} seed{'s' if counts[0] > 1 else ''}"
    seeds = few if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    parts = [f"Final regret{f' of {world}' if world else ''}; {seeds}.", caption(comparisons), *claims]
    lines = [
        r"% \usepackage{booktabs, siunitx}", r"\begin{table}", r"\centering",
        rf"\caption{{{_latex(' '.join(parts))}}}", r"\begin{tabular}{llrrrrr}", r"\toprule", head,
        r"\midrule", *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines)
