"""Messages at the door: the argument, its value as a plain one, and what is allowed."""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from discreet.core import checks
from discreet.mechanisms.interfaces import probabilities


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: checks.positive("x", np.float64(-1)), "x = -1.0: must be a finite number above 0"),
        (lambda: checks.real("x", np.float32(-0.5), 0.0), "x = -0.5: must be a finite number of at least 0"),
        (lambda: checks.real("x", math.nan), "x = nan: must be a finite number"),
        (lambda: checks.real("x", 3, high=2), "x = 3: must be a finite number of at most 2"),
        (
            lambda: checks.real("x", 1, 0, 1, open_low=True, open_high=True),
            "x = 1: must be a number in (0, 1)",
        ),
        (lambda: checks.real("x", 10**400), "must be a finite number"),
        (lambda: checks.real("x", Fraction(-(10**400))), "must be a finite number"),
        (lambda: checks.real("x", np.complex128(1 + 1j)), "x = (1+1j): must be a finite number"),
        (lambda: checks.exactly("n", True, int), "n = True: must be an int, no subclass"),
        (lambda: checks.exactly("n", 1, str, float), "n = 1: must be a str or float, no subclass"),
        (lambda: checks.floats("t", np.ones(1, complex), (1,)), "t: must be an array of numbers"),
        (lambda: checks.floats("t", [10**400], (1,)), "t: must be an array of numbers"),
        (lambda: checks.integer("n", np.int64(0), 1), "n = 0: must be an integer of at least 1"),
        (lambda: checks.integer("n", 7, None, 3), "n = 7: must be an integer of at most 3"),
        (lambda: checks.flag("f", np.int64(1)), "f = 1: must be true or false"),
        (lambda: checks.choice("c", "z" * 1000, ("a",)), f"c = '{'z' * 299}...: must be one of 'a'"),
        (lambda: checks.floats("t", [np.inf], (1,)), "t holds inf: must be finite everywhere"),
        (lambda: checks.floats("t", "abc", (1,)), "t: must be an array of numbers"),
        (lambda: probabilities("p", np.array([0.6, 0.6])), "p sums to 1.2: must sum to 1"),
        (lambda: probabilities("p", np.array([-0.5, 1.5])), "p holds -0.5: probabilities must be"),
    ],
)
def test_messages(check: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check()


@pytest.mark.parametrize(
    ("low", "high", "opened", "words"),
    [
        (-math.inf, math.inf, (True, True), "a finite number"),
        (2, math.inf, (False, False), "a finite number of at least 2"),
        (2, math.inf, (True, True), "a finite number above 2"),
        (-math.inf, 2, (False, False), "a finite number of at most 2"),
        (-math.inf, 2, (True, True), "a finite number below 2"),
        (0.5, 2, (False, False), "a number in [0.5, 2]"),
        (0.5, 2, (True, False), "a number in (0.5, 2]"),
        (0.5, 2, (False, True), "a number in [0.5, 2)"),
        (0.5, 2, (True, True), "a number in (0.5, 2)"),
    ],
)
def test_what_is_allowed_is_said_with_its_ends(
    low: float, high: float, opened: tuple[bool, bool], words: str
) -> None:
    with pytest.raises(ValueError, match=rf"^x = nan: must be {re.escape(words)}$"):
        checks.real("x", math.nan, low, high, open_low=opened[0], open_high=opened[1])


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (None, None, "an integer"),
        (2, None, "an integer of at least 2"),
        (None, 4, "an integer of at most 4"),
        (2, 4, "an integer in [2, 4]"),
    ],
)
def test_integers_are_whole_and_inside(low: int | None, high: int | None, words: str) -> None:
    for value in (2, np.int64(3), np.uint8(4)):
        found = checks.integer("n", value, low, high)
        assert (type(found), found) == (int, int(value))
    outside = [1] * (low is not None) + [5] * (high is not None)
    for bad in (True, np.True_, 3.0, "3", None, 3j, *outside):
        with pytest.raises(
            ValueError, match=rf"^n = {re.escape(checks.said(bad))}: must be {re.escape(words)}$"
        ):
            checks.integer("n", bad, low, high)


def test_what_is_chosen_or_true_is_the_plain_value() -> None:
    options = ("a", 1)
    assert checks.choice("c", np.str_("a"), options) is options[0]
    assert checks.choice("c", 1.0, options) is options[1]
    with pytest.raises(ValueError, match=r"^c = 'b': must be one of 'a', 1$"):
        checks.choice("c", "b", options)
    assert checks.flag("f", np.True_) is True
    assert checks.flag("f", False) is False
    table = np.ones((2, 3), np.float32).T
    found = checks.floats("t", table, (3, 2))
    assert found.dtype == np.float64
    assert found.flags.c_contiguous
    assert found.flags.writeable
    assert not np.shares_memory(checks.floats("t", found, (3, 2)), found)
    with pytest.raises(ValueError, match=r"^t has shape \(3, 2\): must be \(2, 3\)$"):
        checks.floats("t", table, (2, 3))


@pytest.mark.parametrize("open_low", [False, True])
@pytest.mark.parametrize("open_high", [False, True])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, math.inf), (-math.inf, 1.0)])
def test_reals_are_floats_inside_and_nothing_else(
    low: float, high: float, open_low: bool, open_high: bool
) -> None:
    """An infinite end is not a number that one could give, whichever way it is open."""
    tiny = math.ulp(0.0)
    inside = 0, 1, 0.5, Fraction(1, 3), np.float32(0.25), np.int64(1), tiny, math.nextafter(1, 0)
    no_number = True, np.True_, "0.5", None, 1j
    for value in (*inside, -tiny, math.nextafter(1, 2), math.inf, -math.inf, math.nan, *no_number):
        number = isinstance(value, int | float | Fraction | np.number) and not isinstance(value, bool)
        above = number and (low < value if open_low else low <= value)
        if above and (value < high if open_high else value <= high) and not math.isinf(value):
            found = checks.real("x", value, low, high, open_low=open_low, open_high=open_high)
            assert (type(found), found) == (float, float(value))
        else:
            with pytest.raises(ValueError, match=r"x = .*: must be a"):
                checks.real("x", value, low, high, open_low=open_low, open_high=open_high)


def test_texts_in_messages_are_cut_behind_300_letters() -> None:
    assert checks.said("x" * 298) == repr("x" * 298)
    assert checks.said("x" * 299) == "'" + "x" * 299 + "..."
