"""Sentences of guarantees, word for word; numbers of promises are rounded up."""

import numpy as np
import pytest

from discreet.accounting.binomial_noise import Flips
from discreet.accounting.binomial_noise_event import BinomialRecord
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.accounting.shuffle_amplification_event import AmplifiedRecord
from discreet.accounting.text import guarantee_sentences as sentences
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import MechanismRecord, guarantee_of, no_guarantee, parallel
from discreet.core.layout import Layout

QUERY = CountQuery(Layout(2, 2, 2))
CLOSING = (
    "The number of users is public. Noise from a seeded generator in floating point: for simulation only, "
    "whoever knows the seed can remove it."
)
JOINT = (
    "Joint differential privacy: after exchanging any one user's whole trajectory for another, the "
    "probability of anything that all other users see (every release, policy and action) is at most"
)


def noisy(noise, scale, levels, **options):
    record = MechanismRecord.of(QUERY, "binary tree", noise, dict.fromkeys(QUERY.families, scale), levels)
    return guarantee_of("joint", [record], randomness="seeded", **options)


def test_laplace_noise_in_words():
    made = noisy("laplace", 30.0, 3, epsilon_nominal=1.0)
    assert made.statement == (
        f"{JOINT} e^1.2 = 3.33 times what it was before (ε = 1.2, δ = 0). Nominal ε = 1, but the noise of "
        "this calibration gives ε = 1.2: more privacy loss than the name says. Noise: Laplace in every "
        "cell (binary tree, each user in at most 3 noisy sums). A user is one episode; a person with m "
        f"episodes is protected at m times this ε. {CLOSING}"
    )
    assert made.composition == (
        "binary tree: Laplace noise, visits b = 30 (l1 sensitivity 4), transition_counts b = 30 (l1 "
        "sensitivity 4), reward_sums b = 30 (l1 sensitivity 4); joint l1 in units of the noise 0.4, a user "
        "in at most 3 noisy sums: epsilon = 3 x 0.4 = 1.2",
        "1 mechanism on the same users: epsilon adds to 1.2, delta 0",
    )
    assert made.unit == "one user: one episode, the whole trajectory of states, actions and rewards"
    assert made.neighbours == (
        "one user's whole trajectory is replaced by any other one; the number of users stays the same"
    )


def test_gaussian_noise_in_words():
    made = noisy("gaussian", 12.0, 1, delta=1e-6, episodes=3, users_public=False)
    assert made.mu == pytest.approx(np.sqrt(12) / 12)
    assert made.statement.startswith(
        "Joint differential privacy: after exchanging any one user's episodes (up to 3) for any others, the "
    )
    assert made.statement.endswith(
        "plus δ = 1e-06 (ε = 1.24, δ = 1e-06; μ = 0.2887 in Gaussian DP, ρ = 0.04167 in zCDP). Noise: "
        "Gaussian in every cell (binary tree). A user is up to 3 episodes; g users together are protected at "
        "g times this μ. " + CLOSING.removeprefix("The number of users is public. ")
    )
    assert made.composition[-1] == (
        "1 mechanism on the same users: mu^2 adds to 0.288676^2; epsilon 1.23903 at delta 1e-06 by the exact "
        "Gaussian curve"
    )
    assert made.unit == ("one user: up to 3 episodes, the whole trajectories of states, actions and rewards")
    assert made.neighbours == (
        "all of one user's episodes, up to 3, are replaced by any others at the same times; the number of "
        "users stays the same"
    )


def test_reports_in_words():
    half = ReportRecord("reports of 2 steps", 2, {"moves": ("subset", 12, 3, 2**52, 0)})
    for trust, who in (
        ("local", "A device sends reports of 2 steps"),
        ("joint", "The trusted server draws reports of 2 steps from each trajectory, once and with coins of "
         "their own, adds them up, and keeps nothing else of it; there is no other noise"),
    ):  # fmt: skip
        made = guarantee_of(trust, [half], randomness="secure")
        assert (
            f"{who}; a step, and what a report is about, are drawn without looking at the data."
        ) in made.statement
        assert made.composition[0] == (
            "reports of 2 steps: moves (d = 12, 3 of 12 reported, p = 0.5); largest ln of a likelihood ratio "
            "1.09861, 2 independent reports a user: epsilon = 2 x 1.09861 = 2.19722"
        )


def test_shuffled_batches_in_words():
    flips = BinomialRecord("bits", ((("visits", Flips(2000, 2, 2**30, True)),),), ((("visits", 1, 2),),))
    reports = AmplifiedRecord("reports of 1 step", ((1000, 1.5), (50, 0.25)))
    bits, amplified = (
        guarantee_of("shuffle", [one], randomness="seeded", delta=1e-6) for one in (flips, reports)
    )
    assert bits.composition[0] == (
        "bits: worst of 1 kinds of batches: visits 2000 x 2 flips (half of them of the complement), p = "
        f"0.25; a user moves counters by 2 in all, a user in one batch: epsilon = {bits.epsilon!r}"
    )
    assert amplified.composition[0].startswith(
        "reports of 1 step: worst of 2 kinds of batches: 1000 users, each report 1.5-locally private (in all "
        "batches at most 1.5), amplified by shuffling, a user in one batch: epsilon = "
    )
    assert bits.composition[1] == (
        f"1 mechanism on the same users: epsilon {bits.epsilon:.6g} at delta 1e-06 by its privacy-loss "
        "distribution"
    )
    assert "(bits); the shuffler lets out each counter's sum over a batch" in bits.statement
    assert "against the shuffler itself a message is 1.5-locally private." in amplified.statement
    again = "with m episodes is protected at m times this ε and (e^{mε} − 1) / (e^ε − 1) times this δ."
    assert again in bits.statement


def test_kinds_with_the_same_means_share_a_sentence():
    weak, strong = noisy("laplace", 30.0, 3), noisy("laplace", 60.0, 3)
    other = noisy("gaussian", 12.0, 1, delta=1e-6)
    made = parallel([("5 users", weak), ("7 users", strong), ("9 users", other)])
    assert (made.epsilon, made.delta, made.rho) == (other.epsilon, 1e-6, None)
    assert (
        "what is said here of all of them is true of the worst. In 5 users and in 7 users: Noise: Laplace in "
        "every cell (binary tree, each user in at most 3 noisy sums). In 9 users: Noise: Gaussian in every "
        "cell (binary tree). A user is one episode;"
    ) in made.statement
    assert made.composition[1] == (
        f"7 users: {strong.composition[0]}; at delta 0 epsilon = {strong.epsilon!r}"
    )
    assert made.composition[-1] == (
        "3 kinds of batches, each user in one: epsilon 1.23903 at delta 1e-06, that of the worst"
    )


def test_nothing_in_words():
    made = no_guarantee("seeded")
    assert made.statement == (
        "No privacy guarantee: exact sums of users' trajectories are released, without noise."
    )
    assert made.composition == ()


def test_numbers_are_rounded_up():
    rng = np.random.default_rng(0)
    for x in np.exp(rng.uniform(-20, 20, 300)).tolist():
        for digits in (3, 4):
            assert x * (1 - 1e-8) <= float(sentences.up(x, digits)) <= x * (1 + 10.0 ** (1 - digits))
    assert sentences.up(0.0) == "0"
    assert sentences.up(1 + 1e-10) == "1"
    assert sentences.up(1.00001) == "1.001"
