"""What all studies share: tables that are kept, the order of work, and the files left behind."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import papers
from discreet.experiments import file_lock as claims
from discreet.experiments.engine import Engine
from discreet.utils import plot_style as style
from discreet.utils.atomic_file import write_aside
from papers.page import filled
from papers.study import Job, Kept, Study, file_name, kept, reproduce


def test_kept_tables_are_made_again_from_other_facts(tmp_path: Path) -> None:
    path = tmp_path / "deep" / file_name("a curve, ρ = 1 ÷ 2", 3)
    assert path.name == "a-curve-rho-1-over-2-3.parquet"
    calls: list[int] = []

    def make() -> list[dict[str, float | None]]:
        calls.append(1)
        return [{"x": 1.0}, {"x": None}]

    for facts in ({"n": 1}, {"n": 1}, {"n": 2}, {"n": 2}):
        assert kept(path, facts, make) == [{"x": 1.0}, {"x": None}]
    assert len(calls) == 2


def cubes(n: int, made: list[int]) -> list[dict[str, float]]:
    made.append(n)
    time.sleep(0.005)
    return [{"n": float(k), "cube": float(k**3)} for k in range(1, n + 1)]


def wanted(folder: Path, made: list[int]) -> dict[str, Kept]:
    return {f"to {n}": Kept(folder / f"{n}.parquet", {"n": n}, partial(cubes, n, made)) for n in range(1, 13)}


def test_tables_are_the_same_wherever_they_are_made(tmp_path: Path) -> None:
    here = Job(tmp_path / "here", say=lambda _: None).tables(wanted(tmp_path / "here", []))
    assert here == {f"to {n}": cubes(n, []) for n in range(1, 13)}
    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        job = Job(tmp_path / "there", say=said.append, engine=Engine.of(pool))
        assert job.tables(wanted(tmp_path / "there", [])) == here
    assert len(said) == 12
    again: list[int] = []
    assert job.tables(wanted(tmp_path / "there", again)) == here  # nothing is sent, the pool is closed
    assert again == []
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == sorted(
        f"{n}.parquet" for n in range(1, 13)
    )


def test_two_that_reproduce_into_one_folder_share_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads stand for processes: claims are files, and each job has its own."""
    monkeypatch.setattr(claims, "WAIT", 0.01)
    made: list[int] = []

    def one(_: int) -> Any:
        return Job(tmp_path, say=lambda _: None).tables(wanted(tmp_path / "data", made))

    with ThreadPoolExecutor(3) as pool:
        first, *others = pool.map(one, range(3))
    assert sorted(made) == [*range(1, 13)]
    assert others == [first, first]


def test_a_table_that_fails_leaves_no_claim(tmp_path: Path) -> None:
    found = {**wanted(tmp_path, []), "bad": Kept(tmp_path / "bad.parquet", {}, partial(cubes, "x", []))}  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Job(tmp_path, say=lambda _: None).tables(found)
    assert len(list(tmp_path.iterdir())) == 12


def run(job: Job) -> dict[str, Any]:
    return {"n": 3 if job.quick else 30, "found": object()}


def drawn(document: Any) -> Any:
    return document["n"] if "found" in document else None


STUDY = Study(
    "one", run, lambda given: [{"claim": "n", "holds": given["n"] > 3, "numbers": str(given["n"])}],
    lambda given: [("N", [("n",), (str(given["n"]),)])], {"one-a": drawn, "one-b": lambda _: None},
    lambda given: f"n = {given['n']}\n",
)  # fmt: skip


def test_a_study_leaves_numbers_page_and_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "save_figure", lambda figure, path: _save(path, figure))
    said: list[str] = []
    found = reproduce(STUDY, Job(tmp_path, quick=True, say=said.append))
    assert found == json.loads((tmp_path / "one.json").read_text()) == {
        "paper": "one", "quick": True, "n": 3, "claims": [{"claim": "n", "holds": False, "numbers": "3"}],
        "tables": [{"title": "N", "head": ["n"], "rows": [["3"]]}],
    }  # fmt: skip
    assert (tmp_path / "README.md").read_text() == "n = 3\n"
    assert sorted(p.name for p in (tmp_path / "figures").iterdir()) == ["one-a.pdf", "one-a.png"]
    assert said[0] == "does not hold: n: 3"
    assert len(said) == 4


def _save(path: Path, figure: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    write_aside(path, str(figure).encode())


def test_jobs_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="workers = 0"):
        Job(tmp_path, workers=0)
    with pytest.raises(ValueError, match="quick = 1"):
        Job(tmp_path, quick=1)  # type: ignore[arg-type]


def test_every_name_is_a_study() -> None:
    for name in papers.NAMES:
        assert papers.load(name).name == name
    with pytest.raises(ValueError, match="paper = 'none'"):
        papers.load("none")


@pytest.mark.parametrize("name", papers.NAMES)
def test_the_documented_page_is_of_this_template(name: str, tmp_path: Path) -> None:
    """Paragraphs without numbers stand in the documentation word for word."""
    folder = Path(papers.__file__).parent / name.replace("-", "_")
    page = (folder / "README.md").read_text("utf-8")
    for template in folder.glob("[a-z]*.md"):
        plain = [part for part in template.read_text("utf-8").split("\n\n") if "{" not in part]
        assert plain
        (tmp_path / template.name).write_text("\n\n".join(plain))
        for part in filled(tmp_path / template.name, wrap=name != "price-of-privacy").split("\n\n"):
            assert part.strip("\n") in page
