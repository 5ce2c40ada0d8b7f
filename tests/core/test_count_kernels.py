"""Kernels of counts: scales whose losses floats cannot square are refused."""

from typing import Any

import numpy as np
import pytest
from kept_kernels import kept

from discreet.core import count_kernels as kernels
from discreet.core.count_mechanism import CountMechanism, Stated
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.noise.noises import GAUSSIAN, LAPLACE, AdditiveNoise
from discreet.core.raw_encoder import family_begins
from discreet.core.strategies import Batches
from discreet.mechanisms.interfaces import Schedule

LAYOUT = Layout(3, 2, 4)


QUERY = CountQuery(LAYOUT)


SCHEDULE = Schedule(100, times=np.array([0, 10, 20, 40]))


STATED = Stated(1e-6, 1.0)


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("scale", [1e-160, 9e-101, 1e-100, 1e100, 2e100, 1e160, 1e161])
def test_scales_whose_losses_floats_do_not_square_are_refused(noise: AdditiveNoise, scale: float) -> None:
    """At 1e161 squares lose their digits, and mu came out half a per cent too small."""
    made = CountMechanism(QUERY, SCHEDULE, "seeded", Batches(), noise, np.full(3, scale), stated=STATED)
    if not 1e-100 <= scale <= 1e100:
        with pytest.raises(ValueError, match="scales.*: must be a number in"):
            _ = made.records
    else:
        most = 24.0 if noise == LAPLACE else 24.0**0.5
        assert made.records[0].loss == pytest.approx(most / scale, rel=1e-14)


OPTIONS: list[dict[str, Any]] = [
    {}, {"visits": False}, {"known_rewards": True}, {"visits": False, "known_rewards": True},
    {"visits": False, "center_rewards": True}, {"stationary": True}, {"stationary": True, "first": True},
    {"pooled": "all"}, {"pooled": "first"}, {"pooled": "first", "known_rewards": True},
    {"visits": False, "center_rewards": True, "cut": 0.75},
]  # fmt: skip


@pytest.mark.compiles
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_record_adds_to_every_family_what_its_formula_says(options: dict[str, Any]) -> None:
    """Pair (2, 1) is not admissible: its steps add nothing."""
    allowed = np.ones((3, 2), np.bool_)
    allowed[2, 1] = False
    layout = Layout(3, 2, 4, allowed)
    query, rng = CountQuery(layout, **options), np.random.default_rng(4)
    begins, cut = family_begins(query), 0.75
    for _ in range(50):
        states, actions, paid = rng.integers(3, size=5), rng.integers(2, size=4), rng.integers(9, size=4) / 8
        rows = layout.row_index[states[:-1], actions]
        found = np.zeros(query.cells)
        wanted = {name: np.zeros(shape) for name, shape in query.row_families.items()}
        kept(kernels.add_records)(
            states, rows, paid, query.slots, layout.rows, 3, begins, query.reward_shift, cut, found, found
        )
        left = cut
        for h, row in enumerate(rows.tolist()):
            again = states[h] in states[:h]
            if row < 0 or (again and begins[5] == 2):
                continue
            for name, table in wanted.items():
                if name == "cut_reward_sums":
                    counted = min(paid[h], left)
                    table[0, row] += counted
                    left -= counted
                    continue
                if name.startswith("pooled") and again and begins[5] == 1:
                    continue
                at: tuple[int, ...] = (h if table.shape[0] > 1 else 0, row)
                at = (*at, int(states[h + 1])) if table.ndim == 3 else at
                table[at] += paid[h] - query.reward_shift if "reward" in name else 1.0
        assert np.array_equal(found, np.concatenate([table.ravel() for table in wanted.values()]))


@pytest.mark.compiles
@pytest.mark.parametrize("epochs", [False, True])
def test_a_prefix_is_its_parent_and_one_node(epochs: bool) -> None:
    """Epoch e holds users 2^e .. 2^(e+1) - 1; closed epochs are left one by one."""
    parent, slot, epoch = kept(kernels.tree_parent), kept(kernels.tree_slot), kept(kernels.tree_epoch)
    assert [parent(n, False) for n in range(1, 9)] == [0, 0, 2, 0, 4, 4, 6, 0]
    assert [parent(n, True) for n in range(1, 12)] == [0, 1, 1, 3, 3, 5, 3, 7, 7, 9, 7]
    for n in range(1, 200):
        assert epoch(n, epochs) == (n.bit_length() - 1 if epochs else 0)
        inside = n - (2 ** ((n + 1).bit_length() - 1) - 1) if epochs else n
        assert slot(n, epochs) == (0 if inside == 0 else (inside & -inside).bit_length())
