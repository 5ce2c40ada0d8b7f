"""Whole runs on RiverSwim: users one by one and by batches have one law of regret, while learning happens.

400 seeds each, 20 000 users, a release each time the users grow by a fifth. False alarm of each case: a
Kolmogorov-Smirnov test at 1e-7 and three means at 5.4 standard errors (7e-8): below 4e-7.
"""

import numpy as np
import pytest
from scipy import stats

import discreet as dr
from discreet.experiments.simulate import Setup

USERS, SEEDS = 20_000, 400


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("learner", "privatizer", "least", "most"),
    [
        (dr.learners.UCBVI(replan_growth=1.2), dr.NoPrivacy(), 0.0, 0.06),
        (dr.learners.PrivateUCBVI(replan_growth=1.2), dr.Central(epsilon=100.0, release="tree"), 0.06, 0.5),
        (dr.learners.PrivateUCBVI(replan_growth=1.2), dr.Central(epsilon=50.0, release="batches"), 0.06, 0.5),
        (
            dr.learners.PrivateUCBVI(replan_growth=1.2, stationary=True),
            dr.Local(epsilon=30.0, noise="laplace"),
            0.05,
            0.5,
        ),
    ],
    ids=["none", "tree", "batches", "local"],
)
def test_regret_by_batch_has_the_law_of_regret_by_episode(learner, privatizer, least, most):
    finals = {}
    for by, seed in (("episode", 41), ("batch", 42)):
        setup = Setup(dr.make("riverswim"), learner, privatizer, USERS, by)
        assert setup.fused
        runs = [setup.run(seed, run) for run in range(SEEDS)]
        finals[by] = np.array([run.regret[-1] for run in runs])
        difference = np.array([run.gap_regret[-1] - run.regret[-1] for run in runs])
        assert abs(difference.mean()) < 5.4 * difference.std(ddof=1) / np.sqrt(SEEDS)
    never = USERS * (setup.optimal_value - setup.uniform_value)
    for one in finals.values():  # learning happens, and with noise later than without
        assert least * never < one.mean() < most * never
    assert stats.ks_2samp(finals["episode"], finals["batch"]).pvalue > 1e-7
    spread = np.sqrt(sum(one.var(ddof=1) for one in finals.values()) / SEEDS)
    assert abs(finals["episode"].mean() - finals["batch"].mean()) < 5.4 * spread
