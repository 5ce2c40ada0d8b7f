"""Dry run: the real service on this machine with simulated users in a known MDP.

Noise and users are drawn from the same seed. With the rule ``close = "all"``, a dry run therefore repeats
:func:`discreet.simulate`, step by step over HTTP, and its plans are equal bit for bit. A dry run has no real
users, and its noise protects no user.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from discreet.core.rng import Seeded
from discreet.device.http_client import Client, PlanReservation, Turned
from discreet.envs.mdp import planning
from discreet.envs.rollouts.rollout import rollout
from discreet.ledger.signatures import new_key, read_private_key
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.service.server import all_in_background
from discreet.service.study_config import Study
from discreet.service.system_io import SYSTEM

__all__ = ["DryRun", "people_of", "promised_by", "run_dry"]


@dataclass(frozen=True, eq=False)
class DryRun:
    """Results of a dry run.

    Parameters
    ----------
    users, releases, seconds : number of users, number of releases, and duration of the dry run.
    values : pairs (number of users who followed the policy, its expected reward sum), one per policy, in the
        order of use.
    optimal, uniform : expected reward sums of the optimal policy and of the uniform policy in the simulated
        MDP.
    """

    users: int
    releases: int
    seconds: float
    values: Sequence[tuple[int, float]]
    optimal: float
    uniform: float
    last: Any  # policy of the last plan that a user followed

    @property
    def late(self) -> float:
        """Mean expected reward sum of the policies that the last quarter of the users followed."""
        left, total = max(1, self.users // 4), 0.0
        count = left
        for users, value in reversed(self.values):
            taken = min(count, users)
            total, count = total + taken * value, count - taken
        return total / left


def promised_by(study: Study) -> Literal["central", "shuffle"] | float | tuple[float, float]:
    """Return the guarantee in the study's statement, in the form of a client's argument ``promised``."""
    if study.shuffled:
        return "shuffle"
    if not study.local:
        return "central"
    guarantee = study.guarantee
    assert guarantee.epsilon is not None
    return (guarantee.epsilon, guarantee.delta) if guarantee.delta else guarantee.epsilon


def people_of(study: Study, place: PlanReservation, user: int) -> tuple[Any, Any]:
    """Return the trajectory of simulated user ``user`` under their policy, and the random generator of their
    device.
    """
    assert isinstance(study.randomness, Seeded)
    keys = study.randomness.keys
    return rollout(study.world, place.policy, keys.environment, user), SeededRng(keys.noise, user)


_AT_ONCE = 500  # number of users that request places together


def run_dry(
    study: Study,
    progress: Callable[[int], None] = lambda _: None,
    opened: Callable[[str], None] = lambda _: None,
    ended: Callable[[DryRun], None] = lambda _: None,
) -> DryRun:
    """Run the service of a study with simulated users, until all users have taken part.

    Parameters
    ----------
    study : result of :meth:`~discreet.service.study_config.Study.for_dry_run`
    progress : function that is called with the number of users who have answered so far
    opened : function that is called with the address of the service
    ended : function that is called with the results, while the service still answers requests
    """
    begun, world, users = SYSTEM.monotonic(), study.world, _SimulatedUsers(study)
    with tempfile.TemporaryDirectory(prefix="discreet-dry-run-") as folder:
        new_key(Path(folder) / "key")
        key = read_private_key(Path(folder) / "key")
        with all_in_background(study, Path(folder), key) as (url, front, address, service):
            opened(address)
            tickets = front.store.new_tickets(study.users)
            shuffler = url if study.shuffled else None
            with Client(url, key.public, promised=promised_by(study), shuffler=shuffler) as client:
                while users.came < study.users:
                    users.come(client, tickets[users.came : users.came + _AT_ONCE], progress)
                while not service.store.about()["over"]:
                    SYSTEM.pause(0.01)
                releases = int(service.store.about()["turn"])
            best = planning.optimal_values(world)[0]
            found = DryRun(
                study.users,
                releases,
                SYSTEM.monotonic() - begun,
                users.values,
                float(world.initial @ best[0]),
                float(planning.policy_value(world, planning.uniform_policy(world))),
                users.last,
            )
            ended(found)
    return found


class _SimulatedUsers:
    """Simulated users, who take part one after the other, with the policies that they followed."""

    def __init__(self, study: Study) -> None:
        self.study, self.came = study, 0
        self.values: list[tuple[int, float]] = []  # for each policy: (number of users, expected reward sum)
        self.last: Any = None
        self._policies: dict[int, float] = {}

    def come(self, client: Client, tickets: Sequence[str], progress: Callable[[int], None]) -> None:
        """Let the next users request places, act and send messages. If no place is free, wait briefly."""
        places = client.places(tickets)
        given = [one for one in places if isinstance(one, PlanReservation)]
        messages = [self._message(place, user) for user, place in enumerate(given, self.came)]
        for answer in client.send_all(messages) if messages else ():
            if answer["status"] != "counted":
                raise RuntimeError(f"a message was refused: {answer['status']}")
        self.came += len(given)
        progress(self.came)
        if len(given) < len(tickets):
            if any(isinstance(one, Turned) and one.reason != "full" for one in places):
                raise RuntimeError("a place was refused")
            if not given:
                SYSTEM.pause(0.01)

    def _message(self, place: PlanReservation, user: int) -> Any:
        """Return the user's message, and record the value of the policy that they followed."""
        study, (low, high) = self.study, self.study.rewards
        record, draws = people_of(study, place, user)
        earned = low + (high - low) * record.rewards
        own = draws if study.trust != "joint" else None
        message = place.message(record.states, record.actions, earned, own)
        if place.number not in self._policies:
            self._policies[place.number] = planning.policy_value(study.world, place.policy)
            self.values.append((0, self._policies[place.number]))
        self.values[-1] = self.values[-1][0] + 1, self.values[-1][1]
        self.last = np.array(place.policy)
        return message
