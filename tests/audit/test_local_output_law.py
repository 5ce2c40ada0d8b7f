"""The exact law of a message: every outcome of the draws, with its fraction."""

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from discreet.audit.local_output_law import largest_ratio, law_of, lives, log_ratio
from discreet.core.layout import Layout


def flips(chance: int) -> Any:
    """Return a device that sends a flip, and a die where it came up."""

    def encoder(life: Any, plan: Any, coins: Any) -> SimpleNamespace:
        up = coins.flip(chance)
        return SimpleNamespace(message=np.array([up, coins.below(3) if up else 0]))

    return encoder


def test_every_outcome_has_its_exact_chance() -> None:
    law: Any = law_of(flips(2**51), None, None)  # type: ignore[arg-type]
    assert law == {(0.0, 0.0): Fraction(3, 4), **{(1.0, float(n)): Fraction(1, 12) for n in range(3)}}
    other: Any = law_of(flips(2**52), None, None)  # type: ignore[arg-type]
    assert log_ratio(other, law, (1.0, 2.0)) == pytest.approx(math.log(2))
    assert largest_ratio([law, other]) == pytest.approx(math.log(2))
    never: Any = law_of(flips(0), None, None)  # type: ignore[arg-type]
    assert never == {(0.0, 0.0): Fraction(1)}
    assert log_ratio(law, never, (1.0, 0.0)) == math.inf
    assert log_ratio(never, law, (1.0, 0.0)) == -math.inf
    assert largest_ratio([law, never]) == math.inf


def test_continuous_noise_and_raw_records_have_no_finite_law() -> None:
    def noisy(life: Any, plan: Any, coins: Any) -> SimpleNamespace:
        return SimpleNamespace(message=coins.laplace(1.0, 3, None))

    assert law_of(noisy, None, None) is None  # type: ignore[arg-type]
    assert law_of(lambda *_: SimpleNamespace(message=None), None, None) is None  # type: ignore[arg-type, return-value]


def test_every_admissible_life_is_looked_at_once() -> None:
    layout = Layout(2, 2, 2, np.array([[True, True], [True, False]]))
    found = [(*one.states.tolist(), *one.actions.tolist(), *one.rewards.tolist()) for one in lives(layout)]
    assert len(found) == len(set(found)) == 3**2 * 2 * 2**2
