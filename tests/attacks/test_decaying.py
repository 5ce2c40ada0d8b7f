"""Attacks on batches and decaying sums: interrupts, reused noise, laws of leaves that are none."""

from typing import Any

import numpy as np
import pytest
from interrupts import SESSION, interrupted

import discreet as dr
from discreet.core.correlated_noise.decaying_sum import Decaying
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.session import ChannelSession
from discreet.core.trajectories import Trajectory
from discreet.experiments.simulate import Setup
from discreet.mechanisms.interfaces import Plan, Release, Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

LAYOUT = Layout(2, 2, 2)
QUERY = CountQuery(LAYOUT, visits=False, center_rewards=True)
FILES = (*SESSION, "correlated_noise/decaying_sum.py")
POLICY = np.zeros((2, 2), np.int64)
LIFE = Trajectory(np.array([0, 1, 0]), np.array([1, 0]), np.array([1.0, 0.25]))
USER = np.concatenate([t.ravel() for t in QUERY.contribution(LIFE).values()])
SCHEDULE = Schedule(40, times=np.array([0, 2, 3, 7, 8, 12, 20]))
BATCHES = Central(epsilon=1.0, release="batches")
DECAYING = Central(epsilon=1.0, delta=1e-6, release="decaying", decay=0.8)
NOISY = pytest.mark.parametrize("privatizer", [BATCHES, DECAYING], ids=["batches", "decaying"])


def come(session: ChannelSession, users: int) -> None:
    encoder = session.begin(Plan(POLICY, users=users))
    for _ in range(users):
        report = encoder(LIFE, session.open_plan, SecureRng())
        session.submit(report)


def cells(estimates: Any) -> np.ndarray:
    return np.concatenate([e.value.ravel() for e in estimates.values()])


def both(release: Release) -> tuple[np.ndarray, np.ndarray]:
    assert release.measurement is not None
    return cells(release.estimates), cells(release.measurement.estimates)


def ready(privatizer: Any, randomness: Any = None) -> ChannelSession:
    """A session with one release made, and the batch of a second one closed."""
    session: ChannelSession = privatizer.start(QUERY, SCHEDULE, randomness or Seeded(0))
    session.release()
    come(session, 2)
    session.release()
    come(session, 1)
    return session


@NOISY
def test_an_interrupted_release_spends_its_noise(privatizer: Central) -> None:
    """Ctrl-C after the batch was closed: the next release put the same noise on an empty batch.

    It showed the noise itself, and the sums, which held the lost measurement, the batch.
    """
    for at in range(400):
        session = ready(privatizer)
        draw, drawn = session.channel.node_noise, []

        def noted(end: int, *how: Any, draw: Any = draw, drawn: list[int] = drawn) -> Any:
            drawn.append(end)
            return draw(end, *how)

        session.channel.node_noise = noted  # type: ignore[method-assign]
        more = interrupted(session.release, at, files=FILES)
        session.release()
        come(session, 4)
        session.release()
        assert len(set(drawn)) == len(drawn)
        if not more:
            break
    assert 10 < at < 399


def test_the_batch_cannot_be_read_after_an_interrupt() -> None:
    session = ready(BATCHES)
    before = session.state["measured"].copy()
    estimates = session.channel.estimates

    def stopped(*_: object) -> Any:
        raise KeyboardInterrupt

    session.channel.estimates = stopped  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        session.release()
    session.channel.estimates = estimates  # type: ignore[method-assign]
    sums, fresh = both(session.release())
    assert np.abs(sums - before - 2 * fresh - USER).max() > 0.1  # was 0: noise once in each


@NOISY
def test_a_user_weighs_no_more_after_an_interrupt(privatizer: Central) -> None:
    """Without noise all outputs are linear: her column over the measurements has norm below 1.

    After any stop; lost measurements count, since the sums after them are made from them.
    """
    for at in range(400):
        session = privatizer.start(QUERY, SCHEDULE, Seeded(0))
        session.channel.node_noise = lambda *_: np.zeros(QUERY.cells)  # type: ignore[method-assign]
        session.release()
        come(session, 2)  # whose weights are looked at

        def weight(session: ChannelSession = session) -> float:
            """Of the two users in the sum of all measurements so far."""
            return float(session.state["measured"] @ USER / (USER @ USER)) / 2

        weights = [weight()]
        more = interrupted(session.release, at, files=FILES)
        weights.append(weight())
        law = session.release().estimates["transition_counts"].law
        weights.append(weight())
        laws = session.channel.laws.sums(2, 2, session.state["measurements"])  # type: ignore[attr-defined]
        assert law.std() == laws["transition_counts"].std()
        for users in (1, 4, 1, 4):
            session.begin(Plan(POLICY, users=users))
            session.absent(users)
            session.release()
            weights.append(weight())
        assert 0 <= np.linalg.norm(np.diff(weights)) <= 1 + 1e-12
        if not more:
            break
    assert 10 < at < 399


def test_sums_are_made_of_published_measurements_to_the_last_bit() -> None:
    """Both are published and paid for once: the sums must tell nothing that the measurements do not."""
    sources: list[tuple[Central, Any]] = [
        (BATCHES, Seeded(3)), (BATCHES, Secure()), (DECAYING, Seeded(3)),
        (Central(epsilon=1.0, delta=1e-6, noise="gaussian", release="batches"), Secure()),
    ]  # fmt: skip
    for privatizer, randomness in sources:
        session = privatizer.start(QUERY, SCHEDULE, randomness)
        session.release()
        decaying = Decaying(session.mechanism.decay)
        decay, gain = decaying.decay, decaying.gain
        measured, users = np.zeros(QUERY.cells), 0
        for n in (2, 3, 8, 12):  # one is skipped
            come(session, n - users)
            users = n
            sums, fresh = both(session.release())
            assert np.array_equal(sums, (fresh + (1.0 - decay) * measured) / gain)
            measured = measured + fresh


@pytest.mark.parametrize("release", ["auto", "batches", "decaying"])
def test_only_trees_have_leaves(release: Any) -> None:
    """leaf = 'user' with batches: the laws known in advance counted users, those of a release releases."""
    privatizer = Central(epsilon=1.0, delta=1e-6, release=release, leaf="user")
    session = privatizer.start(QUERY, SCHEDULE, Seeded(0))
    session.release()
    users = 0
    for n in SCHEDULE.release_times[1:].tolist():
        come(session, n - users)
        users = n
        assert session.release().estimates["transition_counts"].law == session.laws_at(n)["transition_counts"]


def test_bounds_of_measurements_hold_for_all_of_them() -> None:
    """A bound is for all scheduled releases; each measurement had the whole failure probability."""
    session = BATCHES.start(QUERY, SCHEDULE, Seeded(0))
    law = session.mechanism.laws.measurement(2, 2)["transition_counts"]
    assert law.bound(0.1) == pytest.approx(session.laws_at(2)["transition_counts"].bound(0.1))


@pytest.mark.parametrize(
    ("learner", "privatizer"),
    [
        (dr.NoiseAwareUCBVI(derive_visits=False), DECAYING),
        (dr.NoiseAwareUCBVI(known_rewards=True, center_rewards=False), DECAYING),
        (dr.NoiseAwareUCBVI(center_rewards=False, flow=False), BATCHES),
        (dr.NoiseAwareUCBVI(stationary=True), Central(epsilon=1.0, delta=1e-6, leaf="user", release="auto")),
        (dr.NoiseAwareUCBVI(shrink=False), Local(epsilon=20.0)),
        (dr.NoiseAwareUCBVI(), NoPrivacy()),
        (dr.DPUCBVI(replan_growth=1.5), Central(epsilon=5.0, release="batches", leaf="user")),
        (dr.DPUCBVI(replan_growth=1.5), DECAYING),
    ],
)
def test_fused_equals_stepwise(learner: Any, privatizer: Any) -> None:
    mdp = dr.make("riverswim", horizon=5)
    for by in ("batch", "episode"):
        runs = [Setup(mdp, learner, privatizer, 300, by=by, stepwise=s).run(3, 1) for s in (False, True)]
        assert np.array_equal(runs[0].regret, runs[1].regret)
        assert np.array_equal(runs[0].gap_regret, runs[1].gap_regret)
