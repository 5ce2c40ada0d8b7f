"""The reproduction end to end in small, what its claims are made of, and that nothing is computed twice."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet.envs import linear_mixture
from discreet.experiments.simulate import Setup
from discreet.utils import plot_style as style
from discreet.utils.atomic_file import write_aside
from papers import page
from papers.luyo_2021 import STUDY, pages
from papers.luyo_2021 import runs as luyo
from papers.references import REFERENCES, losses
from papers.study import Job, reproduce

TINY = luyo.Size(users=120, instances=(0, 1), seeds=2, printed_seeds=1, worlds=2, batches=(3, 6))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, list[str]]:
    """A tiny reproduction; figures are drawn but not rendered: that takes seconds."""
    folder, said = tmp_path_factory.mktemp("luyo"), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(luyo, "QUICK", TINY)
        patch.setattr(style, "save_figure", lambda _, path: _drawn(path))
        found = reproduce(STUDY, Job(folder, quick=True, say=said.append))
    return found, folder, said


def _drawn(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    write_aside(path, b"drawn")


def verdict(document: dict[str, Any], begins: str) -> bool:
    [found] = [one["holds"] for one in pages.claims(document) if one["claim"].startswith(begins)]
    return bool(found)


def test_structure(small: tuple[dict[str, Any], Path, list[str]]) -> None:
    found, folder, said = small
    assert json.loads((folder / "luyo-2021.json").read_text()) == found
    assert all(len(line) == len(table["head"]) for table in found["tables"] for line in table["rows"])
    assert sum(line.startswith(("holds:", "does not hold:", "cannot be told")) for line in said) == len(
        found["claims"]
    )
    for part in ("mixture", "lsvi"):
        references = found[part]["references"]
        for group in references.values() if part == "mixture" else [references]:
            assert set(group) == set(REFERENCES)
        for row in found[part]["rows"]:
            assert len(row["mean"]) == len(found[part]["users"])
            assert (np.diff(row["mean"]) >= -1e-9).all()
    rows = pages.mixture_rows(found)
    assert list(rows) == [row.name for row in luyo.rows()]
    assert {name for name, row in rows.items() if row["epsilon_true"] == row["epsilon"]} == {
        row.name for row in luyo.rows() if row.group != "printed" or row.trust == "none"
    }


def test_the_printed_joint_algorithm_ignores_its_data(
    small: tuple[dict[str, Any], Path, list[str]],
) -> None:
    differences = small[0]["mixture"]["differences"]
    assert max(differences[words] for words in pages.PRINTED[:2]) < 0.01
    assert differences["JDP{}"] > 0.05
    assert pages.mixture_rows(small[0])["JDP 1, as printed"]["epsilon_true"] < 0.01


def test_verdicts_follow_the_numbers(small: tuple[dict[str, Any], Path, list[str]]) -> None:
    given = copy.deepcopy(small[0])
    uses = "JDP, as printed, uses its data"
    assert not verdict(given, uses)
    given["mixture"]["differences"][pages.PRINTED[0]] = 0.1
    assert verdict(given, uses)
    rows = pages.mixture_rows(given)
    for name, final in (("none", 10.0), ("JDP 10", 20.0), ("JDP 1", 30.0)):
        rows[name].update(final=final, error=1.0)  # type: ignore[attr-defined]
    assert verdict(given, "ours: regret none < JDP 10 < JDP 1")
    rows["JDP 1"]["final"] = 22.0  # type: ignore[index]
    assert not verdict(given, "ours: regret none < JDP 10 < JDP 1")
    for epsilon, finals in ((None, (20.0, 10.0)), (10.0, (20.0, 10.0)), (1.0, (10.0, 20.0))):
        for row, final in zip(pages.batch_rows(given, epsilon), finals, strict=True):
            row.update(final=final, error=1.0)  # type: ignore[attr-defined]
    assert verdict(given, "LSVI without privacy: more batches help")
    assert verdict(given, "LSVI, JDP 1: more batches hurt")
    assert not verdict(given, "LSVI, JDP 10: more batches hurt")
    assert verdict(given, "UCRL-VTR with the noise as printed is (ε, δ)-JDP")
    rows["JDP 1, as printed"]["epsilon_true"] = 1.1  # type: ignore[index]
    assert not verdict(given, "UCRL-VTR with the noise as printed is (ε, δ)-JDP")
    places = {one["source"] for one in page.papers(pages.claims(given))}
    assert places == {"Corollary 5", "Corollary 6", "section 3, Remark 6", "Theorem 8", "Remark 3"}
    assert not any("ours" in one["claim"] for one in page.papers(pages.claims(given)))


def test_the_page(small: tuple[dict[str, Any], Path, list[str]]) -> None:
    found, folder, _ = small
    page = (folder / "README.md").read_text()
    assert page == pages.page(found)
    assert re.findall(r"figures/([\w.-]+)", page) == ["luyo-2021.png"]
    assert "{" not in page
    for line in page.splitlines():
        assert line.startswith("|") or len(line) <= 115
    assert not re.search(r"/(root|tmp|work|home)/", page)


def test_finished_curves_are_not_run_again(
    small: tuple[dict[str, Any], Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, folder, _ = small

    job = Job(folder, quick=True, say=lambda _: None)

    def no(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(Setup, "run", no)
    again = luyo._mixture(job, TINY)
    assert json.loads(json.dumps(again)) == found["mixture"]
    (folder / "data-quick" / "lsvi-none-B-3-0.parquet").unlink()
    with pytest.raises(AssertionError, match="computed again"):
        luyo._lsvi(job, TINY)


def test_growth_exponents() -> None:
    users = luyo.grid(4000).astype(float)
    assert users[0] == 1
    assert users[-1] == 4000
    assert (users >= 2000).sum() == 9
    assert luyo.exponent(users.tolist(), (3 * users**0.6).tolist()) == pytest.approx(0.6)


def test_policies_without_data() -> None:
    mdp = linear_mixture(seed=0)
    found = losses(mdp, luyo.rows()[0].learner, luyo.rows()[0].privatizer)
    assert found["uniform"] == pytest.approx(1.107, abs=0.001)  # docs/linear.md
    assert found["myopic"] == pytest.approx(0.202, abs=0.001)
    assert 0 < found["never learning"] < 5
