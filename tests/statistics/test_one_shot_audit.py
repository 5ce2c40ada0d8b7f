"""Audit of the one-shot session from outside: one person's loss is seen, and is not more than is said."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.mdp.layout import Layout
from discreet.mdp.trajectories import Trajectories
from discreet.privacy.audit import bounds_of
from discreet.privacy.counts import CountQuery
from discreet.privacy.privatizers import Central
from discreet.privacy.randomness import Secure, Seeded

pytestmark = pytest.mark.statistics

QUERY = CountQuery(Layout(2, 1, 1), center_rewards=True, episodes=2)
RUNS, CHOSEN = 4000, 1000
ALARM = 1e-6  # of each bound


def own(world: int) -> Trajectories:
    """Both episodes of the person, in other cells in the other world."""
    return Trajectories(np.full((2, 2), world), np.zeros((2, 1), int), np.full((2, 1), 1.0 - world))


def numbers(session: Any, world: int) -> np.ndarray:
    session.submit_many(own(world), [0, 0])
    (step,) = session.release()
    return np.concatenate([step.transitions.ravel(), step.visits, step.rewards])


def losses(budget: dict[str, float], secure: bool, halved: bool) -> list[np.ndarray]:
    """Per world, the log-likelihood ratio of the releases, for Gaussian noise up to a factor."""
    query, out = QUERY, []
    moved = {
        name: query.layout.to_rows(sum(query.contribution(t)[name] for t in own(1)))  # type: ignore[arg-type]
        - query.layout.to_rows(sum(query.contribution(t)[name] for t in own(0)))  # type: ignore[arg-type]
        for name in ("transition_counts", "visits", "centered_reward_sums")
    }
    for world in (0, 1):
        found = np.empty(RUNS)
        for run in range(RUNS):
            randomness = Secure() if secure else Seeded(9 + world, run)
            session = Central(**budget).stored(query, randomness)
            scales = dict(zip(query.row_families, session.mechanism.scales.tolist(), strict=True))
            direction = np.concatenate([x.ravel() / scales[name] ** 2 for name, x in moved.items()])
            if halved:
                session._mechanism = replace(session._mechanism, scales=session._mechanism.scales / 2)
            found[run] = numbers(session, world) @ direction
        out.append(found)
    return out


@pytest.mark.parametrize("secure", [False, True], ids=["seeded", "secure"])
def test_the_loss_is_no_more_than_is_said_and_a_halved_scale_is_caught(secure: bool) -> None:
    """A false alarm at the stated scale: 1e-6."""
    mu = 1.0
    for halved in (False, True):
        worlds = losses({"mu": mu}, secure, halved)
        chosen, judged = ([w[:CHOSEN] for w in worlds], [w[CHOSEN:] for w in worlds])
        bound = bounds_of("likelihood", chosen, judged, 0.0, ALARM, ("mu",)).mu
        assert bound > mu if halved else 0.5 * mu < bound <= mu
