"""Real messages of the shuffle protocol: users encoded and counted a second on one core, and bytes a user.

    python benchmarks/shuffle_messages.py [--users 2000] [--states 6] [--actions 2] [--horizon 20]

Transitions and centred rewards at (1, 1e-6), for batches of several sizes. Then the batch sums of 1e6
simulated users, drawn from their exact law.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.device.shuffle_encoder import ShuffleEncoder
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.privatizers.shuffle import Shuffle
from discreet.mechanisms.shuffle.shuffle_session import Analyzer, Shuffler, form_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in (("users", 2000), ("states", 6), ("actions", 2), ("horizon", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    layout = Layout(given.states, given.actions, given.horizon)
    query = CountQuery(layout, visits=False, center_rewards=True)
    privatizer = Shuffle(epsilon=1.0, delta=1e-6)
    draw = np.random.default_rng(0)
    lives = [
        (
            draw.integers(layout.states, size=layout.horizon + 1),
            draw.integers(layout.actions, size=layout.horizon),
            draw.random(layout.horizon),
        )
        for _ in range(given.users)
    ]
    for batch in (1_000, 10_000, 100_000):
        form = form_of(query, privatizer.noise(query, batch), 1)
        encoder, shuffler = ShuffleEncoder(form, 1), Shuffler(form, given.users)
        shuffler.open(1, given.users)
        begin = time.perf_counter()
        messages = [encoder(*life) for life in lives]
        between = time.perf_counter()
        shuffler.receive_many(messages)
        Analyzer(form).sums(shuffler.output())
        end = time.perf_counter()
        flips = ", ".join(f"{family.kind} {family.flips}" for family in form.families)
        print(
            f"batch of {batch}: {form.size} bytes a user ({flips} flips); encoded "
            f"{given.users / (between - begin):,.0f} users/s, counted {given.users / (end - between):,.0f} "
            f"users/s, both {given.users / (end - begin):,.0f} users/s"
        )
    users = 10**6
    session = privatizer.start(query, Schedule.one_shot(users), Seeded(0))
    session.release()
    sums = {name: np.zeros(shape) for name, shape in query.families.items()}
    begin = time.perf_counter()
    session.begin(Plan(np.zeros((layout.horizon, layout.states), np.int64), users))
    session.submit_sum(sums, users)
    session.release()
    print(f"sums of a batch of {users} simulated users: {time.perf_counter() - begin:.4f} s")


if __name__ == "__main__":
    main()
