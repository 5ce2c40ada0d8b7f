"""Noise per counter of the shuffle protocols: ``python -m papers.shuffle_noise``.

For each number of users n: the standard deviation of one transition count of a batch at (epsilon, delta),
all users honest, and of rewards where they are released too. ``published`` and ``basic`` are the closed forms
for three raw families; what they really guarantee is beside them. ``trusted`` is the least Gaussian noise of
a server that sees all trajectories, for transitions alone. ``amplified`` is the alternative without coin
flips: each device reports one random step under local privacy, amplified by shuffling; its std holds what the
sampling of steps adds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from discreet.accounting.binomial_noise import Calibration
from discreet.accounting.shuffle_amplification import local_epsilon
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.families import TRANSITIONS
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.mechanisms.interfaces import Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.shuffle import Shuffle
from discreet.mechanisms.shuffle.amplified_session import reports_of
from discreet.mechanisms.shuffle.shuffle_mechanisms import FlipMechanism
from discreet.utils.markdown_table import markdown

__all__ = ["Row", "noise_table", "page_table"]


@dataclass(frozen=True)
class Row:
    """One protocol at one size. std : by family, in the units of the estimates; epsilon : true one."""

    protocol: str
    users: int
    std: dict[str, float]
    flips: int  # noise bits of one user in one transition counter
    epsilon: float


def noise_table(
    users: Sequence[int] = (1_000, 10_000, 100_000),
    horizon: int = 20,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    states: int = 6,
    actions: int = 2,
) -> list[Row]:
    """Every protocol at every size, computed from the mechanisms themselves."""
    layout = Layout(states, actions, horizon)
    raw = CountQuery(layout)
    moves = CountQuery(layout, visits=False, known_rewards=True)
    centred = CountQuery(layout, visits=False, center_rewards=True)
    shared = CountQuery(layout, visits=False, center_rewards=True, reward_share=0.2)
    asked: list[tuple[str, CountQuery, Calibration]] = [
        ("published, three raw families", raw, "published"),
        ("basic, three raw families", raw, "basic"),
        ("composed, three raw families", raw, "composed"),
        ("composed, transitions alone", moves, "composed"),
        ("joint, transitions alone", moves, "joint"),
        ("joint, and centred rewards, equal shares", centred, "joint"),
        ("joint, and centred rewards, share .2", shared, "joint"),
    ]
    rows = []
    for n in users:
        for name, query, calibration in asked:
            privatizer = Shuffle(epsilon=epsilon, delta=delta, calibration=calibration)
            shuffled = privatizer.mechanism(query, Schedule.one_shot(n), Seeded(0))
            assert isinstance(shuffled, FlipMechanism)
            std = {family: law.std() for family, law in shuffled.laws_at(n).items()}
            flips = dict(shuffled.noises[0])[TRANSITIONS].each
            rows.append(Row(name, n, std, flips, float(shuffled.guarantee.epsilon or math.inf)))
        amplified = Shuffle(epsilon=epsilon, delta=delta, randomizer="amplified")
        for name, query in (("transitions alone", moves), ("and centred rewards, share .2", shared)):
            reported = amplified.mechanism(query, Schedule.one_shot(n), Seeded(0))
            std = {family: law.std() for family, law in reported.laws_at(n).items()}
            epsilon_now = float(reported.guarantee.epsilon or math.inf)
            rows.append(Row(f"amplified, {name}", n, std, 0, epsilon_now))
        stronger = reports_of(moves, local_epsilon(epsilon, delta, n, stronger=True)).unit_std(True)
        name = "amplified, transitions alone, by the bound of 2022"
        rows.append(Row(name, n, {TRANSITIONS: stronger * math.sqrt(n)}, 0, epsilon))
        server = Central(epsilon=epsilon, delta=delta, noise="gaussian", release="batches")
        trusted = server.mechanism(moves, Schedule.one_shot(n), Seeded(0))
        assert isinstance(trusted, CountMechanism)
        law = trusted.laws.measurement(n, n)[TRANSITIONS]
        rows.append(Row("trusted, transitions alone", n, {TRANSITIONS: law.std()}, 0, epsilon))
    return rows


def page_table(rows: Sequence[Row]) -> str:
    """Markdown: protocols down, sizes across; std (of rewards), flips a user, epsilon if far off."""
    sizes = list(dict.fromkeys(row.users for row in rows))
    lines = [("protocol", *(f"n = {n:,}" for n in sizes))]
    for name in dict.fromkeys(row.protocol for row in rows):
        cells = []
        for row in (row for row in rows if row.protocol == name):
            rewards = [value for family, value in row.std.items() if "reward" in family]
            words = f"{row.std[TRANSITIONS]:.1f}"
            words += f" (rewards {rewards[0]:.1f})" if rewards else ""
            words += f", {row.flips} flip{'s' * (row.flips > 1)}" if row.flips else ""
            cells.append(words + (f", ε = {row.epsilon:.2g}" if row.epsilon < 0.9 else ""))
        lines.append((name, *cells))
    return markdown(lines)


if __name__ == "__main__":
    print(page_table(noise_table()))
