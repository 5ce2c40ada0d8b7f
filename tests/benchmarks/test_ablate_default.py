"""The study leaves out what it says, and its copy of the kernels has the numbers of the library."""

import ast
import dataclasses
import json
import math
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import discreet as dr
from benchmarks.studies import ablate_default
from discreet.learners.online import noise_aware, noise_aware_kernels

ROOT = Path(__file__).resolve().parents[2]
KERNELS = Path(noise_aware_kernels.__file__).read_text(encoding="utf-8")


def test_no_constant_is_left_in_the_edited_kernels() -> None:
    text = ablate_default.edited(KERNELS)
    used = {
        node.id
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)
    }
    assert not used & {*ablate_default.CONSTANTS, *ablate_default.INTEGERS}
    assert text.count("model.knobs[KNOBS -") >= len(ablate_default.KNOBS)
    with pytest.raises(ValueError, match="the kernels do not"):
        ablate_default.edited(KERNELS.replace("full = max(1.0, width)", ""))


def test_every_part_changes_something_that_exists() -> None:
    values, options = ablate_default.library(), {f.name for f in dataclasses.fields(dr.NoiseAwareUCBVI)}
    for name, part in ablate_default.PARTS.items():
        assert part.knobs or part.options or part.counts, name
        assert all(values[knob] != value for knob, value in part.knobs.items()), name
        assert options >= {*part.options, *part.base}, name


def test_left_out_explorers_have_no_users() -> None:
    given = (3_000_000, 1 / 32, 16.0, True, 6e6)
    for name, gone in (("draws", (0, 1)), ("optimistic explorer", (2,)), ("uncertainty explorer", (3,))):
        with ablate_default.left_out(ablate_default.PARTS[name]):
            found = noise_aware.explorers_among(*given)
        assert [e for e, users in enumerate(found) if users == 0] == list(gone)
    assert min(noise_aware.explorers_among(*given)) > 0


def test_the_worst_environment_is_measured_again(tmp_path: Path) -> None:
    store = ablate_default.Store(tmp_path / "cells.json", "1")
    chosen = {"one": dr.make("riverswim"), "two": dr.make("riverswim")}
    for world, without in (("one", [1.0, 1.1]), ("two", [2.0, 2.2])):
        store.cells[f"luck | {world} | 1 | 9 | {ablate_default.SEED}"] = without
        store.cells[f"{{}} | {world} | 1 | 9 | {ablate_default.SEED}"] = [1.0, 1.1]
    for side, again in (("luck", [1.0, 1.5]), ("{}", [1.0, 1.0])):
        store.cells[f"{side} | two | 1 | 9 | {ablate_default.SEED_AGAIN}"] = again
    line = store.compare("luck", chosen, 9, 2, 2)
    assert line["mean"] == pytest.approx(math.sqrt(2.0))
    assert line["error"] == pytest.approx(math.log(2.0) / 2.0)
    assert (line["worst"], line["ratio"], line["again"]) == ("two", pytest.approx(2.0), pytest.approx(1.25))
    assert ablate_default.said(line).startswith("| luck | 9e+00 | 1.414 ± 0.347 | two 2.00 (1.")
    rows = ablate_default.table([line, {**line, "users": 90, "mean": 1.0, "least": 0.1}]).splitlines()
    assert rows[0] == "| left out | 9e0 | 9e1 | worst (lower limit) |"
    assert rows[2].startswith(
        "| luck: five pseudo-visits of reward 1 in explorer 3 | 1.414 ± 0.347 | 1.000 ± 0.347 |"
    )
    assert rows[2].endswith(f"| two 1.25 ({line['least']:.2f}) |")


def test_the_table_of_constants_holds_the_values_of_the_code() -> None:
    page = (ROOT / "benchmarks" / "default_constants.md").read_text(encoding="utf-8")
    held = {row[0]: row[1] for row in re.findall(r"^\| `(_\w+)` \| ([^|]+) \|", page, re.MULTILINE)}
    there = {}
    for module in (noise_aware, noise_aware_kernels):
        for name, value in vars(module).items():
            if re.fullmatch(r"_[A-Z][A-Z_]*", name) and isinstance(value, (int, float)):
                there[name] = value
    indices = {"_OPTIMISTIC", "_SEEKING", "_DRAWS"}  # these are no choices
    assert {name: float(value) for name, value in held.items()} == {
        name: value for name, value in there.items() if name not in indices
    }
    kinds = (
        noise_aware._APPROX,
        noise_aware._PURE,
        noise_aware._LOCAL,
        noise_aware._SHUFFLE,
        noise_aware._NONE,
    )
    for name in noise_aware._APPROX:
        if name == "pooled_until":
            continue
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        for cell, kind in zip(row.split("|")[2:7], kinds, strict=True):
            value = cell.strip()
            assert (value if name == "pooled" else float(Fraction(value))) == kind[name], name


@pytest.mark.statistics
def test_the_copy_has_the_regret_of_the_library(tmp_path: Path) -> None:
    out = tmp_path / "cells.json"
    command = (
        "-m benchmarks.studies.ablate_default --only lock --users 3000 --runs 2 --again 0 --parts mixture"
    )
    subprocess.run([sys.executable, *command.split(), "--out", str(out)], cwd=ROOT, check=True)
    cells = json.loads(out.read_text())
    mdp = ablate_default.worlds()["lock"]
    privatizer = dr.Central(epsilon=1.0, delta=1e-6)
    setup = dr.experiments.simulate.Setup(mdp, dr.NoiseAwareUCBVI(), privatizer, 3000, "batch")
    lost = 3000 * (setup.optimal_value - setup.uniform_value)
    expected = [float(setup.run(ablate_default.SEED, i).regret[-1] / lost) for i in range(2)]
    plain, without = (
        cells[f"{{}} | lock | 1 | 3000 | {ablate_default.SEED}"],
        cells[f"mixture | lock | 1 | 3000 | {ablate_default.SEED}"],
    )
    assert plain == expected
    assert plain != without
