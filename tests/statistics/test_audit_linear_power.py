"""The audit's black box on linear sums, end to end: below every true claim, above every false one.

Specification linear-and-offline, section 12, test 7. Confidence 1 - 1e-6 a bound where nothing else is said.
Bugs are those of tests/audit/test_linear_games.py that can be seen from outside.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from discreet.audit.black_box import BlackBoxEvidence, black_box, half_scale_power
from discreet.audit.linear_games import LinearPeople, Probe, canary, game_of
from discreet.audit.run import audit_privatizer
from discreet.device import linear_device as device
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.learners.online.ucrl_vtr import UCRLVTR, UCRLVTRPlus
from discreet.mechanisms.linear import adaptive_queries as responses
from discreet.mechanisms.linear import linear_queries as linear_sums
from discreet.mechanisms.linear import sensitivities as gram
from discreet.mechanisms.linear.linear_session import LinearChannel
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local

pytestmark = pytest.mark.statistics

OWN = Central(mu=1.0, release="batches")
REQUERY = LSVIUCB(response="requery")
# (learner, privatizer, users): of walks enough users for more than one level
CENTRAL = {
    "vtr": (UCRLVTR(), OWN, 2),
    "vtr, raw, square root": (UCRLVTR(targets="raw"), Central(mu=1.0, release="square-root"), 6),
    "vtr, centred, tree": (UCRLVTR(targets="centred"), Central(mu=1.0, release="tree"), 4),
    "vtr+": (UCRLVTRPlus(), OWN, 2),
    "lsvi, model": (LSVIUCB(), OWN, 2),
    "lsvi, requery": (REQUERY, Central(mu=1.0, release="tree"), 4),
}
LOCAL = {
    "vtr, local": (UCRLVTR(), Local(mu=1.0), 2),
    "vtr+, local": (UCRLVTRPlus(), Local(mu=1.0), 2),
    "lsvi, local": (LSVIUCB(), Local(mu=1.0), 2),
    "vtr, local, laplace": (UCRLVTR(), Local(epsilon=2.0), 2),
}


def played(
    learner: Any, privatizer: Any, users: int, horizon: int = 2, nonneg: bool = False
) -> tuple[Probe, LinearPeople]:
    game = game_of(learner, users, privatizer.budget, horizon=horizon, nonneg=nonneg)
    assert game is not None
    probe = Probe.of(learner, game.spec)
    return probe, canary(privatizer.start, probe, game)[0]


def found(
    name: Any, runs: int, kind: type[LinearChannel] = LinearChannel, **options: Any
) -> BlackBoxEvidence:
    learner, privatizer, users = {**CENTRAL, **LOCAL}[name] if isinstance(name, str) else name
    probe, game = played(learner, privatizer, users)

    def start(query: Any, schedule: Any, randomness: Any) -> Any:
        made = privatizer.start(query, schedule, randomness)
        made.channel.__class__ = kind
        return made

    return black_box(start, probe, runs, people=game, **options)


@pytest.mark.parametrize("name", [*CENTRAL, *LOCAL])
def test_bounds_stay_below_the_claim(name: str) -> None:
    evidence = found(name, 800 if name in CENTRAL else 5000)
    assert not evidence.exceeded
    assert evidence.bounds[0].statistic == "likelihood ratio"
    least = evidence.mu if evidence.guarantee.mu is not None else evidence.epsilon
    assert least > 0.1  # it does see the target: a bound of nothing would pass for ever


def test_at_99_percent_bounds_exceed_the_claim_in_one_run_of_100_at_most() -> None:
    """40 audits at confidence 99 %: more than 6 above the claim have probability 3e-7 at most."""
    above = [found("vtr, local", 800, seed=seed, alarm=0.01).exceeded for seed in range(40)]
    most = int(stats.binom.isf(1e-6, 40, 0.01))
    assert sum(above) <= most == 6


@pytest.mark.parametrize("nonneg", [False, True])
def test_the_learner_itself_plays_below_the_claim(nonneg: bool) -> None:
    """Contexts and questions of its own, made of releases."""
    for learner in (UCRLVTRPlus(), REQUERY):
        game = game_of(learner, 6, OWN.budget, nonneg=nonneg)
        assert game is not None
        game, _ = canary(OWN.start, learner, game)
        assert not black_box(OWN.start, learner, 300, people=game).exceeded


class HalfScale(LinearChannel):
    """Noise of half the scale that is claimed."""

    def draw(self, i: int, factor: float, j: int) -> Any:
        return super().draw(i, factor / 2, j)


@pytest.mark.parametrize("name", ["vtr", "vtr, raw, square root", "lsvi, model"])
def test_half_the_noise_is_exposed(name: str) -> None:
    """With the power that is stated, 0.9 and more at these runs."""
    learner, privatizer, users = CENTRAL[name]
    probe, game = played(learner, privatizer, users)
    power = half_scale_power(privatizer.start, probe, game, 1500, 1e-6, 30)
    assert power is not None
    assert power > 0.85
    assert found(name, 1500, HalfScale).exceeded


def test_half_the_noise_of_answers_is_exposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """mu^2 = 1/2 of Gram matrices and 2 of answers, of which the canary sees 1.7 at once."""
    noise = gram.vector_noise
    monkeypatch.setattr(responses.gram, "vector_noise", lambda s, *a, **k: noise(s / 2, *a, **k))
    assert found((LSVIUCB(response="requery", answer_share=0.8), OWN, 2), 2500).exceeded


def test_half_the_noise_of_devices_is_exposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server and its claim know nothing of it."""
    drawn = device.drawn
    monkeypatch.setattr(device, "drawn", lambda family, scales, *a: drawn(family, scales / 2, *a))
    for name in ("vtr, local", "vtr+, local", "lsvi, local"):
        assert found(name, 4000).exceeded


class SharedDraw(LinearChannel):
    """The response takes the standard draws of the Gram matrix's diagonal."""

    def draw(self, i: int, factor: float, j: int) -> Any:
        noise, query = super().draw(i, factor, j), self.query
        scales = query.block_scales(self.mechanism.scales, self.mechanism.noise)
        at = {block[:2]: n for n, block in enumerate(query.blocks) if block[0] != "gram" or block[2]}
        for step in range(query.layout.horizon - 1):
            one, two = at["gram", step], at["response", step]
            hers, mine = (slice(*query.offsets[n : n + 2]) for n in (one, two))
            noise[mine] = noise[hers] / scales[one] * scales[two]
        return noise


def test_one_draw_for_gram_and_response_is_exposed() -> None:
    """A difference of the two has no noise at all: epsilon of 2 and more at a claim of 1."""
    tree = Central(epsilon=1.0, release="tree")
    evidence = found((UCRLVTR(), tree, 2), 400, SharedDraw)
    assert evidence.epsilon > 2
    assert "linear score" in {b.statistic for b in evidence.bounds if b.epsilon > 1}


class FreshOnCumulative(LinearChannel):
    """Every release is the sum over all users with noise for one batch."""

    def noisy(self, s: Any, n: int, leaf: int) -> Any:
        if n == 0:
            return super().noisy(s, n, leaf)
        self._raw = getattr(self, "_raw", 0.0) + s.state["cells"]
        s.state.update(spent=s.state["spent"] + 1, cells=np.zeros(self.query.cells))
        return self._raw + self.draw(s.state["spent"], 1.0, 0), {}


def test_fresh_noise_on_a_cumulative_gram_is_exposed() -> None:
    """The target stands in seven releases, each with noise for one: mu = 2.6, claimed 1."""
    evidence = found((UCRLVTR(replan_every=1), OWN, 8), 1600, FreshOnCumulative)
    assert evidence.exceeded
    assert evidence.mu < math.sqrt(7)


def test_a_sensitivity_of_range_one_for_targets_of_range_two_is_exposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At H = 3 values reach 2; noise and record are made for 1."""
    loss, unit = linear_sums.Pair.loss, linear_sums.Pair.unit

    def of_range_one(pair: linear_sums.Pair) -> linear_sums.Pair:
        bounds = tuple(b / r for b, r in zip(pair.bounds, pair.high, strict=True))
        return dataclasses.replace(pair, bounds=bounds, high=(1.0,) * pair.steps)

    monkeypatch.setattr(linear_sums.Pair, "loss", lambda self, *a: loss(of_range_one(self), *a))
    monkeypatch.setattr(linear_sums.Pair, "unit", lambda self, *a: unit(of_range_one(self), *a))
    probe, game = played(UCRLVTR(targets="raw"), OWN, 2, horizon=3)
    evidence = black_box(OWN.start, probe, 600, people=game)
    assert evidence.guarantee.mu == pytest.approx(1.0)
    assert evidence.mu > 1.5


def test_published_noise_shows_no_more_than_its_true_epsilon() -> None:
    """Luyo et al., corollary 6 at a stated epsilon of 10: their noise buys 2.03."""
    published = Local(epsilon=10.0, delta=1e-5, preset="paper")
    evidence = found((UCRLVTR(preset="paper"), published, 2), 8000)
    claim = evidence.guarantee
    assert claim.epsilon is not None
    assert claim.mu is not None
    assert claim.epsilon == pytest.approx(2.0313, abs=1e-4)
    assert not evidence.exceeded
    assert 0.3 * claim.mu < evidence.mu


@pytest.mark.parametrize("learner", [UCRLVTRPlus(), REQUERY], ids=["vtr+", "lsvi, requery"])
def test_the_command_s_audit_of_linear_learners(learner: Any) -> None:
    """Both games and all identities, as `discreet audit --learner` runs them."""
    out = audit_privatizer(Central(epsilon=1.0, delta=1e-6), learner, runs=800)
    assert out.failures == ()
    assert out.horizon == 2
    assert out.power == 0.0  # at mu = .24 black boxes of 800 runs see nothing, and say so
    assert {i.passed for i in out.identities} == {True}
    assert out.to_json()["passed"]
