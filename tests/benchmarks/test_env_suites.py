"""The declared worlds: frozen, of three kinds, and none of them tuned on; the suite's number."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.leaderboard.env_suites import (
    BROAD,
    KINDS,
    SUITE,
    TRAINING,
    UNTRAINED,
    fingerprint,
    geometric_mean,
)
from discreet.envs.mdp.planning import optimal_values, policy_value, uniform_policy

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


FROZEN_BROAD = {
    **FROZEN,
    "rewarding 6x3 #1011": "42d16a7dc9d0e355",
    "rewarding 6x3 #1012": "f29a3953609add6d",
    "rewarding 6x3 #1013": "c6b97c0421814274",
    "rewarding 10x4 #1014": "bc39bd0513e19fd4",
    "rewarding 4x2 #1015": "485f5d650942314c",
    "bandit A=10 #1016": "4dbca90f45e14125",
    "contextual S=6 A=4 #1017": "f1af0bc6ae8fbf95",
    "tiny gaps A=5 #1018": "a7261ec053197b69",
    "tiny gaps S=4 A=3 #1019": "e341a50b9cdd2297",
    "gamble A=3 #1020": "647e1cebd804b19c",
    "gamble A=6 #1021": "74c337ec51ed0908",
    "deterministic S=8 #1022": "e408f73f4ddda701",
    "deterministic S=10 #1023": "1153fca0f46dec7f",
    "episodic S=8 #1024": "f9b0542e8ebe7e09",
    "episodic S=10 #1025": "71077ba3b87387fd",
    "varying rows S=6 #1026": "091307c423919ca6",
    "varying S=8 #1027": "b0d0ebec93463ae9",
    "varying rewards S=6 #1028": "750563bb3fb7ce4d",
    "varying rewards S=4 #1029": "aad70d333b367095",
    "large S=50 #1030": "6ebc76f6b43c41c3",
    "large S=50 A=4 #1031": "be7dfb4057654e1e",
    "FrozenLake": "a17fe90ab6afce7a",
    "Taxi": "386db8401438a580",
    "ICU-Sepsis H=20": "af9c129dc47906cd",
    "ICU-Sepsis H=10": "2e7ad3cd8f421f43",
}


@cache
def built(world: Any) -> Any:
    return world.build()


@cache
def mark(world: Any) -> str:
    return fingerprint(built(world))


def test_the_suite_is_frozen() -> None:
    assert {world.name: mark(world) for world in SUITE} == FROZEN


def test_the_broad_list_is_frozen_and_keeps_the_suite() -> None:
    assert BROAD[: len(SUITE)] == SUITE
    assert {world.name: mark(world) for world in BROAD} == FROZEN_BROAD


def test_half_of_the_kinds_were_never_tuned_on() -> None:
    trained, reported = {world.kind for world in TRAINING}, {world.kind for world in BROAD}
    assert reported == set(KINDS)
    assert set(UNTRAINED) == reported - trained
    assert 2 * len(UNTRAINED) >= len(KINDS)
    kinds = [world.kind for world in BROAD]
    assert all(kinds.count(kind) >= 2 for kind in set(kinds) - {"chain", "control"})


def test_the_suite_has_what_was_declared() -> None:
    kinds = [world.kind for world in SUITE]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "chain": 1, "control": 1, "dense": 3, "sparse": 3, "deep": 3
    }  # fmt: skip
    sizes = [built(world).states for world in SUITE]
    assert (min(sizes), max(sizes)) == (6, 20)
    assert built(SUITE[0]).reward_law == "bernoulli"
    for world in (*BROAD, *TRAINING):
        mdp = built(world)
        best, uniform = optimal_values(mdp)[0][0] @ mdp.initial, policy_value(mdp, uniform_policy(mdp))
        least = 1.5 if world in SUITE else 1.03
        assert best > least * uniform > 0  # there is something to learn


def test_training_worlds_are_others_of_the_same_kinds() -> None:
    suite = {mark(world) for world in BROAD}
    mine = {mark(world) for world in TRAINING}
    assert not suite & mine
    assert not any(world.env == "riverswim" for world in TRAINING)
    names = [world.name for world in (*BROAD, *TRAINING)]
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
