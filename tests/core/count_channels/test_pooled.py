"""Pooled families in sessions: records, noise by release, and what the guarantee rests on."""

import numpy as np
import pytest

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.session import ChannelSession
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.interfaces import Budget, Plan, Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

LAYOUT = Layout(3, 2, 5)
SHARES = np.array([0.5, 0.9, 0.6, 0.2])
SCHEDULE = Schedule(40, times=np.array([0, 4, 12, 25]), reads="measurements", pooled_shares=SHARES)
PURE, GAUSSIAN = Central(epsilon=2.0), Central(epsilon=2.0, delta=1e-6, release="decaying", decay=0.6)


def query(pooled: str = "all") -> CountQuery:
    return CountQuery(
        LAYOUT,
        visits=False,
        center_rewards=True,
        reward_share=0.2,
        pooled=pooled,
        pooled_share=0.7,  # type: ignore[arg-type]
    )


def session(
    privatizer: object, pooled: str = "all", schedule: Schedule = SCHEDULE, source: object = None
) -> ChannelSession:
    return privatizer.start(query(pooled), schedule, source or Seeded(1, 2))  # type: ignore[attr-defined, no-any-return]


def send(to: ChannelSession, users: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    plan = Plan(np.zeros((5, 3), int), users)
    encoder = to.begin(plan)
    total = {name: np.zeros(shape) for name, shape in to.query.families.items()}
    for _ in range(users):
        trajectory = Trajectory(
            rng.integers(3, size=6), rng.integers(2, size=5), rng.integers(2, size=5) * 1.0
        )
        for name, table in to.query.contribution(trajectory).items():
            total[name] += table
        to.submit(encoder(trajectory, plan, SecureRng()))
    return total


@pytest.mark.parametrize("pooled", ["all", "first"])
def test_compiled_records_are_the_declared_contributions(pooled: str) -> None:
    rng, plain = np.random.default_rng(0), Schedule(40, times=SCHEDULE.times, reads="measurements")
    with session(NoPrivacy(), pooled, plain) as s:
        s.release()
        total = send(s, 4, rng)
        for name, estimate in s.release().estimates.items():
            np.testing.assert_allclose(estimate.value, total[name], atol=1e-12)


@pytest.mark.parametrize("privatizer", [PURE, GAUSSIAN], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("pooled", ["all", "first"])
def test_every_release_has_the_same_joint_loss(privatizer: Central, pooled: str) -> None:
    """The scales at each share, put into the query's own joint sensitivity, cost the stated budget."""
    with session(privatizer, pooled) as s:
        norm = "l1" if privatizer is PURE else "l2"
        costs = [
            s.query.sensitivity(
                norm, dict(zip(s.query.row_families, 1 / s.mechanism.scales_at(i), strict=True))
            )  # type: ignore[arg-type]
            for i in range(4)
        ]
        target = 2.0 if privatizer is PURE else s.guarantee.mu
        assert costs == pytest.approx([target] * 4, rel=1e-9)
        assert s.guarantee.epsilon == pytest.approx(2.0, rel=1e-6)
        parts = [
            s.query.sensitivity(
                norm,
                {
                    name: 1 / scale
                    for name, scale in zip(s.query.row_families, s.mechanism.scales_at(i), strict=True)
                    if "pooled" in name
                },
            )  # type: ignore[arg-type]
            for i in range(4)
        ]
        power = 1 if privatizer is PURE else 2
        assert [(x / target) ** power for x in parts] == pytest.approx(SHARES, rel=1e-9)


@pytest.mark.parametrize("privatizer", [PURE, GAUSSIAN], ids=["laplace", "gaussian"])
def test_noise_has_the_scale_of_its_release_and_the_law_says_so(privatizer: Central) -> None:
    """Absent users only: releases are noise. 36 cells x 300 seeds, a ratio off by 8 %: alarm below 1e-6."""
    seen: dict[tuple[int, str], list[float]] = {}
    expected: dict[tuple[int, str], float] = {}
    for run in range(300):
        with session(privatizer, source=Seeded(3, run)) as s:
            s.release()
            for i, n in enumerate((4, 8, 13), 1):
                s.begin(Plan(np.zeros((5, 3), int), n))
                s.absent(n)
                release = s.release()
                assert release.measurement is not None
                for kind, estimates in enumerate((release.measurement.estimates, release.estimates)):
                    for name in ("transition_counts", "pooled_transition_counts"):
                        key = (2 * i + kind, name)
                        seen.setdefault(key, []).append(float((estimates[name].value ** 2).mean()))
                        expected[key] = estimates[name].law.std()
                assert release.estimates["transition_counts"].law.std() == pytest.approx(
                    s.laws_at(release.users)["transition_counts"].std(), rel=1e-12
                )
    for key, squares in seen.items():
        assert np.sqrt(np.mean(squares)) == pytest.approx(expected[key], rel=0.08)


def test_exact_noise_takes_them_too() -> None:
    with session(Central(epsilon=2.0), source=Secure()) as s:
        s.release()
        send(s, 4, np.random.default_rng(1))
        release = s.release()
        pooled = release.estimates["pooled_transition_counts"].value
        assert (pooled == np.round(pooled)).all()
        assert s.guarantee.epsilon == pytest.approx(2.0)


def test_what_cannot_follow_a_schedule_of_shares_refuses_it() -> None:
    for privatizer in (
        Central(epsilon=1.0, release="tree"),
        Local(epsilon=1.0),
        Central(epsilon=1.0, preset="paper"),
    ):
        with pytest.raises(ValueError, match="pooled_shares: must be None|no measurements"):
            session(privatizer)
    with pytest.raises(ValueError, match="the query pools nothing"):
        PURE.start(CountQuery(LAYOUT), SCHEDULE, Seeded(0, 0))
    with pytest.raises(ValueError, match=r"every entry must be in \(0, 1\)"):
        Schedule(40, times=np.array([0, 4]), pooled_shares=np.array([0.5, 1.0]))


def test_budgets_are_public_terms() -> None:
    assert Central(epsilon=1.0).budget == Budget("joint", 1.0)
    assert Central(epsilon=1.0).budget.pure
    assert Central(epsilon=1.0, delta=1e-6).budget == Budget("joint", 1.0, 1e-6, reports=False)
    assert Local(mu=0.5).budget == Budget("local", mu=0.5)
    assert not NoPrivacy().budget.private
