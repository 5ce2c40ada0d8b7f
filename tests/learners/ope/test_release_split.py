"""Split of a release: moments of the parts, their laws, and that learners and estimates read them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.accounting.noise_distributions.distributions import (
    GaussianSumLaw,
    LaplaceSumLaw,
    NoNoise,
    SubGaussianSumLaw,
)
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectories
from discreet.learners.offline.release_files import FIRST_VISITS, ReleaseFacts, read_release, write_release
from discreet.learners.ope.count_estimates import BEHAVIOUR, PolicyEstimate, evaluate
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.learners.ope.release_split import content_hash, split_release
from discreet.learners.ope.transition_gains import return_steps
from discreet.mechanisms.dataset.dataset_release import KeptRelease
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds, StepSums
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

LAYOUT = Layout(3, 2, 4)


def episodes(n: int, seed: int = 0) -> Trajectories:
    draw = np.random.default_rng(seed)
    return Trajectories(
        draw.integers(3, size=(n, 5)), draw.integers(2, size=(n, 4)), draw.integers(3, size=(n, 4)) / 2
    )


def kept(query: CountQuery, people: Trajectories, privatizer: Any, randomness: Any = None) -> KeptRelease:
    with privatizer.stored(query, randomness or dr.Seeded(3)) as session:
        session.submit_many(people, np.arange(len(people)))
        return session.release().keep()


def first_visits(n: int = 2000, privatizer: Any = None, **more: Any) -> tuple[FirstVisits, KeptRelease]:
    asked = FirstVisits(ProblemSpec(LAYOUT, stationary=True), **more)
    return asked, kept(
        asked.query(), asked.to_records(episodes(n)), privatizer or Central(epsilon=1.0, delta=1e-6)
    )


def arrays(release: Any, slots: int = 1) -> list[np.ndarray]:
    found = (release.step(h) for h in range(slots))
    return [np.asarray(x) for sums in found for x in (sums.visits, sums.transitions, sums.rewards)]


def made(law: type, sigma: float, seed: int, many: int = 10_000) -> KeptRelease:
    """Return a release of 2 ``many`` pairs with Poisson counts and noise of deviation ``sigma``."""
    draw, layout = np.random.default_rng(seed), Layout(2, many, 1)
    counts = draw.poisson([120.0, 80.0], (2 * many, 2)).astype(float)
    returns = draw.binomial(counts.sum(1).astype(int), 0.3) - 0.5 * counts.sum(1)
    tables, laws = [], {}
    for name, table, spread in zip(
        (VISITS, TRANSITIONS, CENTERED_REWARDS),
        (counts.sum(1), counts, returns),
        (sigma, 1.5 * sigma, sigma),
        strict=True,
    ):
        own, noise = NoNoise(), np.zeros(table.shape)
        if law is not NoNoise:
            scale = spread / np.sqrt(2.0) if law is LaplaceSumLaw else spread
            own = law(scale=scale, terms=1.0, terms_bound=1, cells=table.size, rows=2 * many)
            noise = getattr(draw, "laplace" if law is LaplaceSumLaw else "normal")(0, scale, table.shape)
        tables.append(table + noise)
        laws[name] = own
    query = CountQuery(layout, center_rewards=True)
    sums = StepSums(0, tables[1], tables[0], tables[2])
    return KeptRelease(query, 1000, laws, None, (), (sums,))  # type: ignore[arg-type]


@pytest.mark.parametrize("law", [NoNoise, GaussianSumLaw, LaplaceSumLaw])
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_parts_of_a_cell_have_their_moments_and_are_uncorrelated(law: type, share: float) -> None:
    """20 000 cells: means within 6 deviations, variances within 8 %, |correlation| < 0.03 (4 deviations).

    Fixed seeds; a fresh one would raise a false alarm in less than 1 of 100 runs.
    """
    sigma = 8.0
    parts = split_release(made(law, sigma, 5), share)
    noise = 0.0 if law is NoNoise else sigma**2
    for of_part, part in zip((share, 1.0 - share), parts, strict=True):
        assert part.users == round(1000 * of_part)
        sums = part.step(0)
        means = (200.0, 120.0, -0.2 * 200.0)
        counts = (200.0, 120.0, 0.25 * 200.0)  # variance of a sum of R = sum (r - 1/2): E (r - 1/2)^2 = 1/4
        cells = (sums.visits, sums.transitions[:, 0], sums.rewards)
        for mean, count, many, name, cell in zip(
            means, counts, (1.0, 2.25, 1.0), (VISITS, TRANSITIONS, CENTERED_REWARDS), cells, strict=True
        ):
            assert part.laws[name].std() ** 2 == pytest.approx(of_part * many * noise)
            variance = of_part * (count + many * noise)
            assert cell.var() == pytest.approx(variance, rel=0.08)
            assert cell.mean() == pytest.approx(of_part * mean, abs=6 * np.sqrt(variance / cell.size))
    one, other = (part.step(0) for part in parts)
    for x, y in (
        (one.visits, other.visits), (one.transitions[:, 1], other.transitions[:, 1]),
        (one.rewards, other.rewards), (one.visits, other.rewards), (one.transitions[:, 0], other.visits),
    ):  # fmt: skip
        assert abs(np.corrcoef(x, y)[0, 1]) < 0.03


def test_parts_add_up_to_the_release() -> None:
    """Bit by bit with discrete noise, within rounding with continuous noise."""
    _, continuous = first_visits()
    _, discrete = first_visits(privatizer=Central(epsilon=1.0, delta=1e-6, noise="gaussian"))
    discrete = replace(
        discrete,
        steps=tuple(
            StepSums(0, np.rint(x.transitions), np.rint(x.visits), np.rint(2 * x.rewards) / 2)
            for x in discrete
        ),
    )
    for release, exact in ((continuous, False), (discrete, True)):
        train, held_out = split_release(release, 0.3)
        for whole, one, other in zip(arrays(release), arrays(train), arrays(held_out), strict=True):
            if exact:
                assert np.array_equal(one + other, whole)
            np.testing.assert_allclose(one + other, whole, atol=1e-12, rtol=1e-14)
        assert next(iter(train)).step == 0


def test_returns_follow_transitions_as_those_of_users_do() -> None:
    """Errors of returns and of their own transitions have the covariance that users give them, within 3 %.

    The covariance of two Poisson sums is the sum of the products of what one user adds to both. Visits, first
    visits and returns are counted by a loop, apart from the code that is tested.
    """
    draw, n, horizon = np.random.default_rng(7), 60_000, 6
    law = draw.dirichlet(np.ones(4), (2, 2))  # of going to 0, 1, the bad end 2 and the good end 3
    states, actions = np.zeros((n, horizon + 1), int), draw.integers(2, size=(n, horizon))
    states[:, 0] = draw.integers(2, size=n)
    for h in range(horizon):
        s, a = states[:, h], actions[:, h]
        going = (draw.random(n)[:, None] > np.cumsum(law[np.minimum(s, 1), a], axis=1)).sum(axis=1)
        states[:, h + 1] = np.where(s < 2, np.minimum(going, 3), s)
    returns = ReturnBounds(terminal=(2, 3), outcomes={3: 1.0})
    asked = FirstVisits(ProblemSpec(Layout(4, 2, horizon), stationary=True, returns=returns))
    people = Trajectories(states, actions, np.zeros((n, horizon)))
    told = asked.read(kept(asked.query(), asked.to_records(people), NoPrivacy()))
    layout = asked.layout
    moved, earned = np.zeros((n, layout.rows, layout.states)), np.zeros((n, layout.rows))
    for i in range(n):
        seen = set()
        for h in range(horizon):
            s = int(states[i, h])
            if s in seen or s >= 2:
                continue
            seen.add(s)
            row = layout.row_index[s, actions[i, h]]
            moved[i, row, states[i, h + 1]] += 1.0
            earned[i, row] = float(states[i, -1] == 3) - 0.5
    truth = np.einsum("ir,ist->rst", earned, moved, optimize=True)
    steps = return_steps(told)
    each = np.zeros_like(truth)
    consistent, mean = told.consistent(), told.returns / np.maximum(told.visits, 1.0)
    for s, t in np.ndindex(layout.rows, layout.states):
        e = np.zeros((layout.rows, layout.states))
        e[s, t] = consistent[s, t]
        each[:, s, t] = steps.errors(e, consistent, layout.state_ptr)[0] + mean * e.sum(axis=1)
    live = layout.row_state < 2
    truth, each = (table[live][:, live] for table in (truth, each))
    counts = consistent[live]
    truth, each = (
        x - x.sum(axis=2, keepdims=True) * counts / counts.sum(axis=1)[:, None] for x in (truth, each)
    )
    own = np.arange(4)
    apart = np.abs(truth - each)
    assert apart[own, own].max() < 0.03 * np.abs(truth[own, own]).sum(axis=1).max()
    apart[own, own] = truth[own, own] = 0.0
    assert (
        apart.sum() < 0.45 * np.abs(truth).sum()
    )  # of later steps, the model knows the mean over steps only


def test_steps_of_returns_change_returns_only() -> None:
    returns = ReturnBounds(terminal=(2,), outcomes={2: 1.0})
    asked = FirstVisits(ProblemSpec(LAYOUT, stationary=True, returns=returns))
    drawn = episodes(3000)
    people = Trajectories(np.maximum.accumulate(drawn.states, axis=1), drawn.actions, drawn.rewards)
    release = kept(asked.query(), asked.to_records(people), Central(epsilon=1.0, delta=1e-6))
    plain, followed = (split_release(release, 0.5, x) for x in (None, return_steps(asked.read(release))))
    for one, other in zip(plain, followed, strict=True):
        visits, moves, returns = arrays(other)
        assert np.array_equal(visits, arrays(one)[0])
        assert np.array_equal(moves, arrays(one)[1])
        assert not np.array_equal(returns, arrays(one)[2])
    whole, train, held_out = (arrays(x)[2] for x in (release, *followed))
    np.testing.assert_allclose(train + held_out, whole, atol=1e-9)


def test_same_values_same_split_whether_in_memory_or_in_a_file(tmp_path: Path) -> None:
    asked, release = first_visits()
    path = tmp_path / "release.parquet"
    facts = ReleaseFacts(
        layout=asked.layout, users=2000, guarantee=release.guarantee, laws=release.laws, query=FIRST_VISITS
    )
    write_release(path, release, facts)
    stored = read_release(path)
    assert content_hash(stored) == content_hash(release)
    one, same, other = split_release(release), split_release(stored), split_release(stored, 0.4)
    for x, y, z in zip(one, same, other, strict=True):
        assert x.made_from == y.made_from
        assert x.made_from["release"] == content_hash(release)
        for a, b, c in zip(arrays(x), arrays(y), arrays(z), strict=True):
            assert np.array_equal(a, b)
            assert not np.allclose(a, c)
        assert x.guarantee == release.guarantee
    assert [part.part for part in one] == ["train", "held_out"]
    again = split_release(one[0])[0]  # a part can be split again
    assert again.users == 500
    assert again.laws[VISITS].std() == pytest.approx(0.5 * release.laws[VISITS].std())


def test_laws_of_parts_bound_their_noise() -> None:
    """Quantiles hold for the noise of parts, of any kind (20 000 cells, bound at 1e-3)."""
    draw = np.random.default_rng(7)
    for law in (
        LaplaceSumLaw(3.0, 2.0, 2, 20_000, 20_000),
        GaussianSumLaw(3.0, 2.0, 2, 20_000, 20_000, unit=0.5),
        SubGaussianSumLaw(3.0, 2.0, 2, 20_000, 20_000),
    ):
        heavy = law.family == "laplace"
        noise = getattr(draw, "laplace" if heavy else "normal")(0.0, 3.0, (2, 20_000)).sum(axis=0)
        layout = Layout(2, 10_000, 1)
        sums = StepSums(0, np.full((20_000, 2), 500.0), 1000.0 + noise)
        laws = {TRANSITIONS: NoNoise(), VISITS: law}
        release = KeptRelease(CountQuery(layout), 10, laws, None, (), (sums,))  # type: ignore[arg-type]
        for share, part in zip((0.5, 0.5), split_release(release), strict=True):
            found = part.step(0)
            own = found.visits - found.transitions.sum(axis=1)  # noise of visits alone
            assert part.laws[VISITS].std() == pytest.approx(np.sqrt(share) * law.std())
            assert own.std() == pytest.approx(np.sqrt(share) * law.std(), rel=0.03)
            assert np.abs(own).max() < part.laws[VISITS].bound(1e-3)
            assert part.laws[VISITS].bound(1e-3) < 1.2 * law.bound(1e-3)
    with pytest.raises(ValueError, match="noise of this kind cannot be split"):
        split_release(replace(release, laws={TRANSITIONS: NoNoise(), VISITS: _Odd()}))


class _Odd(NoNoise):
    @property
    def family(self) -> str:  # type: ignore[override]
        return "odd"

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_learners_and_estimates_read_parts(noise: str) -> None:
    budget = {"epsilon": 5.0} | ({"delta": 1e-6} if noise == "gaussian" else {})
    privatizer = Central(noise=noise, **budget)
    asked, release = first_visits(20_000, privatizer, episodes=3)
    for part in split_release(release):
        told = asked.read(part)
        assert told.episodes == pytest.approx(10_000, abs=600)
        assert told.people == 10_000
        assert told.heavy == (noise == "laplace")
        assert part.episodes == 3
    spec = ProblemSpec(LAYOUT)
    learner = dr.DPAPVI()
    release = kept(learner.query(spec), episodes(20_000), privatizer)
    train, held_out = split_release(release)
    assert train.slots == 4
    learned = learner.learn(train, spec)
    assert learned.users == 10_000
    found = evaluate(held_out, spec, {"learned": PolicyEstimate(learned.policy)})
    gain = found.difference("learned", BEHAVIOUR)
    assert gain.low <= 0.0 <= gain.high  # every policy is equally good here
    pooled = dr.DPAPVI(stationary=True).learn(train, ProblemSpec(LAYOUT, stationary=True))
    assert pooled.policy.shape == (4, 3)


def test_without_visits_and_without_privacy() -> None:
    spec = ProblemSpec(LAYOUT, known_rewards=np.zeros((4, 3, 2)))
    release = kept(dr.DPAPVI(visits="derived").query(spec), episodes(2000), NoPrivacy())
    train, held_out = split_release(release)
    for h in range(4):
        whole, one, other = release.step(h), train.step(h), held_out.step(h)
        assert one.visits is None
        assert np.array_equal(one.transitions + other.transitions, whole.transitions)
        assert (one.transitions >= 0).all()
        assert np.array_equal(one.transitions, np.rint(one.transitions))  # a random half of the users
    with pytest.raises(ValueError, match="h = 4"):
        train.step(4)


def test_bad_arguments_are_refused() -> None:
    _, release = first_visits(10)
    for share in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="share"):
            split_release(release, share)
    with pytest.raises(ValueError, match="release = .*: must be a release of offline data"):
        split_release(3)  # type: ignore[arg-type]
