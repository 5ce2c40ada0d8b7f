"""The declared worlds: frozen, of three kinds, and none of them tuned on; the suite's number."""

import math

import numpy as np
import pytest

from discreet.experiments.suite import SUITE, TRAINING, fingerprint, geometric_mean
from discreet.mdp.planning import optimal_values, uniform_policy, value

FROZEN = {
    "RiverSwim": "3ac6b39424c3ab10",
    "switching chain #1000": "6034ce9b6f4a279f",
    "dense S=6 #1001": "2ed989d8f845629f",
    "dense S=10 #1002": "ca6052334502ae6b",
    "dense S=16 #1003": "a27c3e39512fa8c2",
    "sparse S=8 #1004": "9529322768a8a6f9",
    "sparse S=12 #1005": "dcce430d2669a8a7",
    "sparse S=20 #1006": "12f2da14c6bd94b9",
    "deep S=6 #1007": "9659045999306a72",
    "deep S=10 #1008": "1bb0d317a41ed654",
    "deep S=20 #1009": "638b3751cc42a601",
}


def test_the_suite_is_frozen() -> None:
    assert {world.name: fingerprint(world.build()) for world in SUITE} == FROZEN


def test_the_suite_has_what_was_declared() -> None:
    kinds = [world.kind for world in SUITE]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "chain": 1, "control": 1, "dense": 3, "sparse": 3, "deep": 3
    }  # fmt: skip
    sizes = [world.build().states for world in SUITE]
    assert (min(sizes), max(sizes)) == (6, 20)
    assert SUITE[0].build().reward_law == "bernoulli"
    for world in (*SUITE, *TRAINING):
        mdp = world.build()
        best, uniform = optimal_values(mdp)[0][0] @ mdp.initial, value(mdp, uniform_policy(mdp))
        assert best > 1.5 * uniform > 0  # there is something to learn


def test_training_worlds_are_others_of_the_same_kinds() -> None:
    suite = {fingerprint(world.build()) for world in SUITE}
    mine = {fingerprint(world.build()) for world in TRAINING}
    assert not suite & mine
    assert {"dense", "sparse", "deep", "control"} == {world.kind for world in TRAINING}
    assert not any(world.env == "riverswim" for world in TRAINING)
    names = [world.name for world in (*SUITE, *TRAINING)]
    assert len(set(names)) == len(names)


def test_fingerprint_sees_every_array() -> None:
    from discreet.envs import riverswim

    seen = {
        fingerprint(mdp)
        for mdp in (
            riverswim(), riverswim(rewards="bernoulli"), riverswim(horizon=19), riverswim(states=7),
        )
    }  # fmt: skip
    assert len(seen) == 4


def test_geometric_mean_of_mean_shares() -> None:
    one = geometric_mean([[0.1, 0.3], [0.8, 0.8]])
    assert one.estimate == pytest.approx(0.4)  # sqrt(0.2 * 0.8)
    # variance of the logarithm: (0.1 / 0.2)^2 + 0, over 2^2; the standard error of [0.1, 0.3] is 0.1
    half = 1.959964 * 0.5 / 2
    assert one.high == pytest.approx(0.4 * math.exp(half), rel=1e-5)
    assert one.low == pytest.approx(0.4 * math.exp(-half), rel=1e-5)
    assert geometric_mean([[0.5], [0.5, 0.5]]).low is None
    for bad in ([], [[0.0, 0.0]], [[0.1], [-0.1]]):
        with pytest.raises(ValueError, match="shares"):
            geometric_mean(bad)


def test_geometric_means_interval_covers() -> None:
    rng, truth, inside = np.random.default_rng(3), math.sqrt(0.2 * 0.5), 0
    for _ in range(400):
        shares = [0.2 * rng.gamma(4.0, 0.25, 32), 0.5 * rng.gamma(4.0, 0.25, 32)]
        interval = geometric_mean(shares)
        assert interval.low is not None
        assert interval.high is not None
        inside += interval.low <= truth <= interval.high
    assert inside >= 343  # at a coverage of 93 % fewer have a probability below 1e-6
