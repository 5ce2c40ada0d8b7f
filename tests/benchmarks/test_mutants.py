"""The mutants: what is drawn, what a fault looks like, which tests are chosen, and what the tables say."""

from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray")  # of the extra "mutate"

from benchmarks.studies.mutants import __main__ as study
from benchmarks.studies.mutants import mutations
from benchmarks.studies.mutants.mutations import Mutant

CODE = '''"""Head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    WIDTH = 1 + 1


class Asked(Protocol):
    @property
    def size(self) -> int | None: ...


def clipped(x: int | None, top: int = 3) -> int | None:
    """At most top."""
    check(x)
    if x is None:
        raise ValueError("none")
    total = 0
    total += x
    return total if total < top else top
'''


def drawn(code: str) -> list[Mutant]:
    return [mutant for site in mutations.sites(code, "code.py") for mutant in site]


def test_faults_are_put_where_code_runs_and_nowhere_else() -> None:
    lines = {mutant.line for mutant in drawn(CODE)}
    assert not lines & {8, 11, 12, 13}  # what is for type checkers, and a protocol
    after = {mutations.shown(CODE, text) for one in drawn(CODE) if (text := one.code(CODE))}
    assert ("check(x)", "pass") in after
    assert ('raise ValueError("none")', "pass") in after
    assert ("total += x", "pass") in after
    assert ("if x is None:", "if x is not None:") in after
    assert ("return total if total < top else top", "return total if total <= top else top") in after
    assert ("total = 0", "total = 1") in after
    assert not any("int + None" in new or "int - None" in new for _, new in after)
    assert ("if x is None:", "if x == None:") not in after


def test_every_mutant_is_another_program() -> None:
    for one in drawn(CODE):
        text = one.code(CODE)
        assert text is None or compile(text, "code.py", "exec")
        assert text != CODE


def test_a_seed_fixes_the_draw_and_a_site_is_drawn_once(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE)
    first, again, other = (mutations.ordered(["code.py"], tmp_path, seed)["code.py"] for seed in (1, 1, 2))
    assert first == again != other
    places = [(one.line, one.operator.split("_")[0]) for one in first]
    assert len(first) == len(mutations.sites(CODE, "code.py")) <= len(places)


def test_quotas_add_up_and_are_in_proportion() -> None:
    wanted = mutations.quotas({"a": 600, "b": 300, "c": 90, "d": 2}, 100, 4)
    assert sum(wanted.values()) == 100
    assert wanted["d"] == 2  # it has no more
    assert wanted["c"] >= 4
    assert wanted["a"] == pytest.approx(2 * wanted["b"], abs=3)


def test_the_statement_of_a_line() -> None:
    lines = CODE.splitlines()
    at = lines.index("    if x is None:") + 1
    assert list(mutations.statement(CODE, at)) == [at]
    code = "f(\n    1,\n    2,\n)\nfor i in (\n    3,\n):\n    g(i)\n"
    assert list(mutations.statement(code, 3)) == [1, 2, 3, 4]
    assert list(mutations.statement(code, 6)) == [5, 6, 7]
    assert list(mutations.statement(code, 8)) == [8]


def test_tests_of_the_line_come_first_and_quick_ones_first(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("x = 1\n\n\ndef f():\n    return x\n")
    covered = {
        "tests/test_other.py::test_slow": {"seconds": 9.0, "lines": {"code.py": [5]}},
        "tests/test_other.py::test_quick": {"seconds": 0.1, "lines": {"code.py": [5]}},
        "tests/test_code.py::test_own": {"seconds": 1.0, "lines": {"code.py": [5]}},
        "tests/test_code.py::test_head": {"seconds": 0.1, "lines": {"code.py": [4]}},
        "tests/test_far.py::test_far": {"seconds": 0.1, "lines": {}},
    }
    assert study.chosen(Mutant("code.py", "AddNot", 0, 5), tmp_path, covered) == [
        "tests/test_code.py::test_own", "tests/test_other.py::test_quick", "tests/test_other.py::test_slow",
    ]  # fmt: skip
    loaded = study.chosen(Mutant("code.py", "AddNot", 0, 1), tmp_path, covered)
    assert set(loaded) == set(covered) - {"tests/test_far.py::test_far"}  # no test runs a module's own lines
    first, second = study.parts(
        ["a", "b", "c"], {"a": {"seconds": 1}, "b": {"seconds": 25}, "c": {"seconds": 99}}
    )
    assert (first, second) == (["a"], ["b"])


def test_the_core_is_a_package_and_the_mechanisms_beside_it() -> None:
    files = study.core(study.ROOT / "src")
    assert "discreet/core/count_channels.py" in files
    assert "discreet/core/noise/discrete_samplers_kernels.py" in files
    assert "discreet/mechanisms/linear/linear_queries.py" in files
    assert not any("online" in file or "envs" in file for file in files)
    assert sum("/core/" not in file for file in files) == len(study.MORE)
    assert all((study.ROOT / "src" / file).exists() for file in files)


def test_the_page_counts_and_names_survivors() -> None:
    row = {
        "file": "discreet/a.py",
        "operator": "AddNot",
        "line": 3,
        "before": "if x:",
        "after": "if not x:",
        "tests": 5,
    }
    rows = [row | {"outcome": outcome} for outcome in ("killed", "timeout", "survived", "unloadable")]
    text = study.page(rows)
    assert "| a.py | 3 | 2 | 1 |" in text
    assert "66.7 %" in text
    assert text.count("`if not x:`") == 1
