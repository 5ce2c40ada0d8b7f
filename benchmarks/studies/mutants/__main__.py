"""``python -m benchmarks.studies.mutants``: see the package."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.studies.mutants import mutations, server
from benchmarks.studies.mutants.mutations import Mutant

ROOT = Path(__file__).parents[3]
COPIED = ("src", "tests", "papers", "docs", "benchmarks", "README.md", "CHANGELOG.md", "pyproject.toml")
# Beside the package: mechanisms that are no plain sums of counts, and what words are made by.
MORE = (
    "mechanisms.linear.linear_mechanism",
    "mechanisms.linear.adaptive_queries", "mechanisms.linear.linear_queries",
    "accounting.randomized_response_event", "mechanisms.local.randomized_response_strategy",
    "mechanisms.local.randomized_response", "mechanisms.batch_queries",
    "accounting.shuffle_amplification_event",
    "accounting.binomial_noise_event", "mechanisms.shuffle.shuffle_mechanisms",
    "accounting.text.mechanism_names", "accounting.serialization",
    "accounting.text.guarantee_sentences",
)  # fmt: skip
TESTS = tuple(
    f"tests/{name}"
    for name in (
        "core", "accounting", "mechanisms", "ledger", "attacks", "audit", "device", "data", "envs",
        "goldens", "learners", "pipeline", "reports",
    )
)  # fmt: skip
# Compiled lines cannot be followed. Mutants of kernels are therefore judged as Python code, by these files.
INTERPRETED = (
    "tests/core/test_*kernels.py", "tests/core/*/test_*kernels.py",
    "tests/core/noise/test_discrete_samplers.py",
    "tests/core/correlated_noise/test_signed_digit_tree.py",
    "tests/core/correlated_noise/test_square_root_toeplitz.py",
)  # fmt: skip
TOO_SLOW = "test_discrete_samplers.py and (law or independent or large or tiny or tail or unbiased)"
CACHE_KEEPERS = ("discreet/core/compile.py", "discreet/core/user_data_dir.py")
FIRST, SECOND = 10.0, 60.0  # CPU seconds of tests on the unchanged code; the second: ``--again``
QUICK = 1.0  # CPU seconds: of a test that runs again with a file that may have changed
LIMIT = 900.0  # seconds for one mutant
Covered = Mapping[str, Mapping[str, Any]]


def core(source: Path) -> list[str]:
    """The files of the trusted core, below the source folder."""
    more = {f"discreet/{name.replace('.', '/')}.py" for name in MORE}
    inside = {file.relative_to(source).as_posix() for file in source.joinpath("discreet/core").rglob("*.py")}
    return sorted(inside | more)


# ------------------------------------------------------------------------------ before the first mutant


def environment(out: Path) -> dict[str, str]:
    """Of every process that runs the tree: its sources, its own cache, byte code by digests."""
    tree = out / "tree"
    path = [str(tree / "src"), str(tree), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(out / "cache"), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def prepare(out: Path) -> None:
    """The tree, its byte code and its compiled kernels."""
    tree = out / "tree"
    if tree.exists():
        return
    aside = out / "tree.partial"
    shutil.rmtree(aside, ignore_errors=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, aside / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, aside / name)
    aside.rename(tree)
    run = [sys.executable, "-m"]
    names = [name for name in COPIED if (tree / name).is_dir()]
    subprocess.run(
        [*run, "compileall", "-q", "--invalidation-mode", "checked-hash", *names], cwd=tree, check=True
    )
    subprocess.run([*run, "discreet", "warmup"], cwd=tree, env=environment(out), check=True)


def follow(out: Path, files: Sequence[str], tests: Sequence[str]) -> tuple[Covered, Covered]:
    """Which test runs which lines of the code as it is, by ``tests``; and how long interpreted kernels take.

    A test that does not pass here kills nothing later.
    """
    tree = out / "tree"
    slow = sorted(file.relative_to(tree).as_posix() for name in INTERPRETED for file in tree.glob(name))
    every = "\n".join(str(tree / "src" / file) for file in files)
    looks = []
    for kept, more, asked in (
        (out / "covered.json", {}, ["-n", "0", *tests]),
        (
            out / "interpreted.json",
            {"NUMBA_DISABLE_JIT": "1"},
            ["-n", "0", "-p", "tests.helpers.interpreted_kernels", "-k", f"not ({TOO_SLOW})", *slow],
        ),
    ):
        if not kept.exists():
            env = environment(out) | more | {"MUTANTS_FILES": every, "MUTANTS_COVERED": str(kept)}
            command = [sys.executable, "-m", "pytest", "-p", "benchmarks.studies.mutants.covered"]
            command += ["-p", "no:cacheprovider", "-q", "-m", "not statistics", *asked]
            subprocess.run(command, cwd=tree, env=env, check=False)
        found: Covered = json.loads(kept.read_text())
        looks.append({test: one for test, one in found.items() if one["passed"] and "lines" in one})
    return looks[0], looks[1]


def is_kernel(file: str) -> bool:
    """Return True for a file of compiled functions."""
    return file.endswith("kernels.py")


# ------------------------------------------------------------------------------ which tests


def chosen(mutant: Mutant, source: Path, covered: Covered) -> list[str]:
    """Tests that run the mutant's statement, in the order of their worth: own files and quick ones first.

    Of a statement that runs when modules are loaded: tests that run anything of the module.
    """
    file = mutant.file
    lines = set(mutations.statement((source / file).read_text(), mutant.line))
    fitting = [test for test, one in covered.items() if lines & set(one["lines"].get(file, ()))]
    fitting = fitting or [test for test, one in covered.items() if is_kernel(file) or file in one["lines"]]
    stem = Path(mutant.file).stem.removesuffix("_kernels")
    if mutant.file in CACHE_KEEPERS:  # they work while modules are loaded, and in processes that tests start
        fitting = [test for test in covered if f"/test_{stem}.py" in test or test in fitting]
    calls: Counter[str] = Counter()
    order = []
    for test in sorted(fitting, key=lambda test: (covered[test]["seconds"], test)):
        path, _, name = test.partition("::")
        near = f"test_{stem}" in path or f"/{stem}/" in path  # a file, or a folder of the name
        calls[f"{path}{name.split('[')[0]}"] += 1
        order.append((not near, calls[f"{path}{name.split('[')[0]}"] // 3, covered[test]["seconds"], test))
    return [test for *_, test in sorted(order)]


def parts(tests: Iterable[str], covered: Covered) -> tuple[list[str], list[str]]:
    """Tests of the first look, and those that are left for the second, each up to its time."""
    total, looks = 0.0, ([], [])  # type: tuple[float, tuple[list[str], list[str]]]
    for test in tests:
        total += covered[test]["seconds"]
        if total > FIRST + SECOND:
            break
        looks[total > FIRST].append(test)
    return looks


def judge(
    mutant: Mutant, out: Path, look: server.Look, limit: float, source_text: str, text: str
) -> server.Verdict:
    """Put the mutant in its place, run its tests, take it away. limit : seconds for one look."""
    tree = out / "tree"
    file = tree / "src" / mutant.file
    stat = file.stat()
    cache = None
    if is_kernel(mutant.file) or mutant.file in CACHE_KEEPERS:
        cache = out / "work" / "cache"
    module = mutant.file.removesuffix(".py").replace("/", ".")
    shutil.rmtree(out / "work", ignore_errors=True)
    file.write_text(text)
    try:
        if cache is not None and mutant.file in CACHE_KEEPERS:
            shutil.copytree(out / "cache", cache)
        return server.judge(tree, module, look, out / "work" / "run", limit, cache, is_kernel(mutant.file))
    finally:
        file.write_text(source_text)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # by which compiled kernels are known


# ------------------------------------------------------------------------------ the run


def run(out: Path, seed: int, total: int, least: int, only: str, skip: str, tests: Sequence[str]) -> None:
    """Judge the mutants that are not judged yet, in random turns: a run that is stopped is a sample too."""
    tree = out / "tree"
    source = tree / "src"
    looks = follow(out, core(source), tests)
    files = [file for file in core(source) if only in file and not (skip and skip in file)]
    drawn = mutations.ordered(files, source, seed)
    wanted = mutations.quotas({file: len(every) for file, every in drawn.items()}, total, least)
    turns = [file for file in files for _ in range(wanted[file])]
    random.Random(seed).shuffle(turns)
    left = {file: iter(every) for file, every in drawn.items()}
    kept = out / "mutants.jsonl"
    done = {_key(row): row for row in rows(out)}
    server.load()
    for file in turns:
        text = (source / file).read_text()
        for mutant in left[file]:
            row = done.get(_key(asdict(mutant)))
            if row is None:
                code = mutant.code(text)
                if code is None:
                    continue
                covered = looks[is_kernel(file)]
                look = server.Look(parts(chosen(mutant, source, covered), covered)[0])
                verdict = judge(mutant, out, look, LIMIT, text, code)
                before, after = mutations.shown(text, code)
                row = {**asdict(mutant), "before": before, "after": after, **asdict(verdict)}
                with kept.open("a") as stream:
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                print(
                    f"{row['outcome']:10} {file}:{mutant.line} {mutant.operator} {row['seconds']} s",
                    flush=True,
                )
            if row["outcome"] != "unloadable":
                break


def again(out: Path, given: Sequence[str], only: str) -> None:
    """Judge the survivors once more, by the tests of their lines that were left out and by what was written.

    That are the tests of their own files and of ``given``, as they stand now, but those known to be slow.
    """
    tree = out / "tree"
    source = tree / "src"
    shutil.rmtree(tree / "tests")
    shutil.copytree(ROOT / "tests", tree / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    looks = follow(out, core(source), TESTS)
    every = rows(out)
    server.load()
    for i, row in enumerate(every):
        if row["outcome"] != "survived" or only not in row["file"]:
            continue
        mutant = Mutant(**{name: row[name] for name in ("file", "operator", "occurrence", "line")})
        text = (source / mutant.file).read_text()
        covered = looks[is_kernel(mutant.file)]
        own = sorted((tree / "tests").rglob(f"test_{Path(mutant.file).stem.removesuffix('_kernels')}.py"))
        files = list(dict.fromkeys([*(file.relative_to(tree).as_posix() for file in own), *given]))
        slow = {test for test, one in covered.items() if one["seconds"] > QUICK}
        look = server.Look(parts(chosen(mutant, source, covered), covered)[1], files, slow)
        verdict = judge(mutant, out, look, LIMIT, text, mutant.code(text) or text)
        print(
            f"{verdict.outcome:10} {mutant.file}:{mutant.line} {verdict.by} {verdict.seconds} s", flush=True
        )
        every[i] = row | {"outcome": verdict.outcome, "by": verdict.by, "again": True}
        lines = [json.dumps(one, ensure_ascii=False) for one in every]
        (out / "mutants.jsonl").write_text("\n".join(lines) + "\n")


def _key(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["file"], row["operator"], row["occurrence"]


def rows(out: Path) -> list[dict[str, Any]]:
    """What was judged so far."""
    with contextlib.suppress(FileNotFoundError):
        return [json.loads(line) for line in (out / "mutants.jsonl").read_text().splitlines()]
    return []


def page(judged: Sequence[Mapping[str, Any]]) -> str:
    """The table by module, and every survivor."""
    # children of the server must find nothing of ours loaded
    from discreet.audit.black_box import rate_limits
    from discreet.utils.markdown_table import markdown

    counted = [row for row in judged if row["outcome"] != "unloadable"]
    table = []
    for file in sorted({row["file"] for row in counted}):
        every = [row for row in counted if row["file"] == file]
        alive = sum(row["outcome"] == "survived" for row in every)
        table.append([file.removeprefix("discreet/"), len(every), len(every) - alive, alive])
    alive = sum(row["outcome"] == "survived" for row in counted)
    table.append(["in all", len(counted), len(counted) - alive, alive])
    head = ["module", "mutants", "killed", "survivors"]
    text = markdown([head, *([str(cell) for cell in row] for row in table)])
    killed = len(counted) - alive
    low = rate_limits(killed, len(counted), 0.05)[0] if counted else 0.0
    text += f"\n\nKilled: {100 * killed / max(1, len(counted)):.1f} %, with 95 % confidence at least "
    text += f"{100 * low:.1f} % (Clopper-Pearson).\n\n## Survivors\n\n"
    for row in sorted(counted, key=lambda row: (row["file"], row["line"])):
        if row["outcome"] == "survived":
            place = f"{row['file'].removeprefix('discreet/')}:{row['line']}"
            text += f"- `{place}` ({row['operator']}, {row['tests']} tests)\n"
            text += f"  - `{row['before']}`\n  - `{row['after']}`\n"
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, judge, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.mutants", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/mutants"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=400)
    parser.add_argument("--least", type=int, default=4, help="mutants of every file")
    parser.add_argument("--only", default="", help="files whose name holds this")
    parser.add_argument("--skip", default="", help="not files whose name holds this")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="folders of tests that judge")
    parser.add_argument(
        "--again",
        nargs="*",
        metavar="FILE",
        help="survivors alone, by their own tests and these files of tests",
    )
    given = parser.parse_args(arguments)
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    prepare(out)
    os.environ.update(environment(out))
    if given.again is None:
        run(out, given.seed, given.mutants, given.least, given.only, given.skip, given.tests)
    else:
        again(out, given.again, given.only)
    (out / "mutants.md").write_text(page(rows(out)))


if __name__ == "__main__":
    main()
