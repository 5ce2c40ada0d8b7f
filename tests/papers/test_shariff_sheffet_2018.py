"""The reproduction end to end in small, and the true epsilon of the printed noise by brute force."""

import math
from itertools import product

import numpy as np
import pytest

from papers.shariff_sheffet_2018 import STUDY, pages, runs
from papers.study import Job, reproduce


def test_replacing_a_user_costs_what_the_page_says():
    """Largest mu of a node over a grid of (x, y), (x', y'), from the density of GOE(s): L^2 / s = 2 / s."""
    angles, radii, rewards = np.linspace(0, 2 * np.pi, 25), (0.0, 0.5, 1.0), (0.0, 0.5, 1.0)
    rows = [np.array([r * math.cos(a), r * math.sin(a), y]) for a, r, y in product(angles, radii, rewards)]
    matrices = np.array([np.outer(v, v) for v in rows])
    s, off = 3.0, ~np.eye(3, dtype=bool)
    most = 0.0
    for one in matrices:
        change = matrices - one
        diagonal = np.einsum("nii->ni", change) ** 2 / (2 * s**2)  # variance 2 s^2 on the diagonal
        above = change[:, off] ** 2 / (2 * s**2)  # each of the pairs counts twice
        most = max(most, float((diagonal.sum(axis=1) + above.sum(axis=1)).max()))
    assert math.sqrt(most) == pytest.approx(2 / s, rel=1e-9)


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
@pytest.mark.parametrize("users", [500, 20_000])
def test_the_true_epsilon_does_not_depend_on_the_nodes(epsilon, users):
    mu = math.sqrt(runs.nodes(users)) * 2 / runs.printed_scale(epsilon, users)
    assert mu == pytest.approx(epsilon / (4 * math.log(4 / runs.DELTA)), rel=1e-12)
    assert runs.true_epsilon(epsilon) < epsilon


def test_printed_rows_draw_the_printed_noise():
    for row in runs.rows(500):
        if row.name.endswith("as printed") and row.epsilon is not None:
            setup = runs.ContextSetup(runs.world("shared", 0), row.learner, row.privatizer, 500)
            scale = runs.printed_scale(row.epsilon, 500)
            assert setup.mechanism.scales["gram"][0] == pytest.approx(scale, rel=1e-9)
            assert setup.guarantee.epsilon <= row.epsilon


def test_the_study_runs_in_small(tmp_path):
    said = []
    found = reproduce(STUDY, Job(tmp_path, quick=True, say=said.append))
    assert len(found["rows"]) == len(runs.rows(500))
    text = (tmp_path / "README.md").read_text()
    assert all(row["name"] in text for row in found["rows"])
    verdicts = {one["claim"]: one.get("holds") for one in pages.claims(found)}
    assert verdicts["the tree with Gaussian noise is (ε, δ)-jointly private"]
    assert "{" not in text
