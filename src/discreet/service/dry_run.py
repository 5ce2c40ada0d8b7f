"""Dry run: the real service on this machine with simulated users in a known environment.

Noise and users are drawn from the same seed. With states and the rule ``close = "all"``, a dry run therefore
repeats :func:`discreet.simulate`, step by step over HTTP, and its plans are equal bit for bit. Devices that
add noise to sums draw exact noise from the operating system, even in a dry run. A dry run has no real users,
and its noise protects no user. With the rule ``close = "clock"``, the clock of the service jumps to the next
release when all places are taken and answered.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from discreet.core.rng import Seeded
from discreet.device.context_policy import chosen_actions
from discreet.device.http_client import Client, PlanReservation, Turned
from discreet.envs.context_worlds import ContextWorld
from discreet.envs.mdp import planning
from discreet.envs.rollouts.rollout import rollout
from discreet.ledger.signatures import new_key, read_private_key
from discreet.mechanisms.linear.context_query import ContextRecord
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.service.clock_batches import settling_time
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
    """Return the trajectory of simulated user ``user`` under the given policy, and the random generator of
    the device. In a study with contexts, the trajectory is replaced by the user's record.
    """
    source = study.randomness
    seeded = source if isinstance(source, Seeded) else Seeded(study.rehearsal.get("seed", 0))
    keys, world = seeded.keys, study.world
    coins = SeededRng(keys.noise, user)
    if not isinstance(world, ContextWorld):
        return rollout(world, place.policy, keys.environment, user), coins
    rng, public = (np.random.default_rng([*map(int, key), user]) for key in (keys.environment, keys.ties))
    contexts = np.asarray(world.draw(1, rng), np.float64)
    actions = _actions(world, place, contexts, public)
    rewards = (rng.random(1) < world.means(contexts)[0, actions]).astype(np.float64)
    return ContextRecord(contexts, actions, rewards), coins


def _actions(world: ContextWorld, place: PlanReservation, contexts: Any, rng: Any) -> Any:
    features = world.features
    return chosen_actions(place.policy, place.context, features(contexts), features.form == "shared", rng)


class _Valuation:
    """Calculator of expected reward sums in the simulated environment.

    With contexts, it uses means over 20 000 simulated users.
    """

    def __init__(self, world: Any) -> None:
        self._world, self._contexts = world, None
        if not isinstance(world, ContextWorld):
            self.optimal = float(world.initial @ planning.optimal_values(world)[0][0])
            self.uniform = float(planning.policy_value(world, planning.uniform_policy(world)))
            return
        self._contexts = np.asarray(world.draw(_VALUED, np.random.default_rng(0)), np.float64)
        self._means = world.means(self._contexts)
        self.optimal, self.uniform = float(self._means.max(axis=1).mean()), float(self._means.mean())

    def value(self, place: PlanReservation) -> float:
        """Return the value of the policy of a plan."""
        if self._contexts is None:
            return float(planning.policy_value(self._world, place.policy))
        actions = _actions(self._world, place, self._contexts, np.random.default_rng(1))
        return float(self._means[np.arange(_VALUED), actions].mean())


_VALUED = 20_000  # number of contexts from which values are estimated
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
    begun, valuation, clock = SYSTEM.monotonic(), _Valuation(study.world), _Clock(study)
    users = _SimulatedUsers(study, valuation)
    with tempfile.TemporaryDirectory(prefix="discreet-dry-run-") as folder:
        new_key(Path(folder) / "key")
        key = read_private_key(Path(folder) / "key")
        io = SYSTEM.with_clock(clock.now)
        with all_in_background(study, Path(folder), key, io) as (url, front, address, service):
            opened(address)
            if study.participation.most > 1:  # each simulated user takes part once
                tickets = front.store.tickets_for([f"user {n}" for n in range(study.users)])
            else:
                tickets = front.store.new_tickets(study.users)
            shuffler = url if study.shuffled else None
            with Client(url, key.public, promised=promised_by(study), shuffler=shuffler) as client:
                while users.came < study.users:
                    turn = int(service.store.about()["turn"])  # recorded before places are requested
                    if not users.come(client, tickets[users.came : users.came + _AT_ONCE], progress):
                        clock.jump(turn)
                while not (about := service.store.about())["over"]:
                    clock.jump(int(about["turn"]))
                    SYSTEM.pause(0.01)
                releases = int(service.store.about()["turn"])
            found = DryRun(
                study.users,
                releases,
                SYSTEM.monotonic() - begun,
                users.values,
                valuation.optimal,
                valuation.uniform,
                users.last,
            )
            ended(found)
    return found


class _Clock:
    """Clock that skips the time for which a batch with the rule "clock" is open."""

    def __init__(self, study: Study) -> None:
        self._every, self._jumps = study.every, 0

    def now(self) -> float:
        """Return the seconds since 1970, plus all jumps and one settling time."""
        if self._every is None or not self._jumps:
            return SYSTEM.now()
        return SYSTEM.now() + self._jumps * self._every + settling_time(self._every)

    def jump(self, turn: int) -> None:
        """Jump to the end of batch ``turn``, unless the clock has already done so."""
        self._jumps = max(self._jumps, turn + 1)


class _SimulatedUsers:
    """Simulated users, who take part one after the other, with the policies that they followed."""

    def __init__(self, study: Study, valuation: _Valuation) -> None:
        self.study, self.came, self._valuation = study, 0, valuation
        self.values: list[tuple[int, float]] = []  # for each policy: (number of users, expected reward sum)
        self.last: Any = None
        self._policies: dict[int, float] = {}

    def come(self, client: Client, tickets: Sequence[str], progress: Callable[[int], None]) -> bool:
        """Let the next users request places, act and send messages. If no place is free, wait briefly.

        Returns True if a place was free.
        """
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
        return bool(given)

    def _message(self, place: PlanReservation, user: int) -> Any:
        """Return the user's message, and record the value of the policy that they followed."""
        study, (low, high) = self.study, self.study.rewards
        record, draws = people_of(study, place, user)
        earned = low + (high - low) * record.rewards
        # a device with exact noise draws it from the operating system
        own = draws if study.trust != "joint" and isinstance(study.randomness, Seeded) else None
        states: Any = record.contexts if isinstance(record, ContextRecord) else record.states
        message = place.message(states, record.actions, earned, own)
        if place.number not in self._policies:
            self._policies[place.number] = self._valuation.value(place)
            self.values.append((0, self._policies[place.number]))
        self.values[-1] = self.values[-1][0] + 1, self.values[-1][1]
        self.last = np.array(place.policy)
        return message
