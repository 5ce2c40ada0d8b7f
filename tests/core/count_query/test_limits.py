"""Both ends of every range that the core allows, and what holds where an argument is left out."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest

from discreet.core import checks
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.decaying_sum import Decaying
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
from discreet.core.count_mechanism import CountMechanism, Stated
from discreet.core.count_query import CountQuery
from discreet.core.events import MechanismRecord, joint_loss
from discreet.core.guarantee import guarantee_of, no_guarantee
from discreet.core.layout import Layout
from discreet.core.noise import discrete_samplers as exact
from discreet.core.raw_encoder import add_records, noise_vector
from discreet.core.releases import Estimate, Message, Plan, Release, Schedule
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.session import ChannelSession
from discreet.core.strategies import Batches, Prefixes

LAYOUT = Layout(3, 2, 4)
BELOW_1, ABOVE_0 = math.nextafter(1, 0), math.ulp(0.0)


def asked(**options: Any) -> CountQuery:
    return CountQuery(LAYOUT, **options)


def cut(value: float) -> CountQuery:
    return asked(visits=False, center_rewards=True, cut=value)


def groups(clip: float, **more: Any) -> CountQuery:
    return asked(groups=2, clip=clip, **more)


def times(*ends: int, **more: Any) -> Schedule:
    return Schedule(10, times=np.array([0, *ends]), **more)


def shares(*values: float) -> Schedule:
    return times(3, pooled_shares=np.array(values))


ENDS: list[tuple[Callable[[Any], object], str, tuple[Any, ...], tuple[Any, ...]]] = [
    (lambda n: Layout(n, 1, 1), "states", (1,), (0,)),
    (lambda n: Layout(1, n, 1), "actions", (1,), (0,)),
    (lambda n: Layout(1, 1, n), "horizon", (1,), (0,)),
    (lambda x: asked(reward_share=x), "reward_share", (ABOVE_0, BELOW_1), (0.0, 1.0)),
    (lambda x: asked(pooled="all", pooled_share=x), "pooled_share", (ABOVE_0, BELOW_1), (0.0, 1.0)),
    (lambda x: groups(1.0, return_share=x), "return_share", (ABOVE_0, BELOW_1), (0.0, 1.0)),
    (lambda n: asked(episodes=n), "episodes", (1, 10**6), (0, 10**6 + 1)),
    (lambda n: asked(step=n), "step", (0, 3), (-1, 4)),
    (lambda n: asked(groups=n, clip=float(n > 0)), "groups", (0, 1), (-1,)),
    (groups, "clip", (ABOVE_0, 4.0), (0.0, -1.0, 4.001, 9.0)),
    (lambda x: asked(clip=x), "clip", (0.0,), (1.0, ABOVE_0)),
    (cut, "cut", (1e-6, 4.0, 0.0), (9.99e-7, 4.001, -1.0)),
    (lambda n: SignedDigits(9, n), "arity", (2, 1024), (1, 1025)),
    (lambda n: SignedDigits(9, 3, n), "levels", (1, 64), (0, 65)),
    (SquareRoot, "leaves", (1, 10**7), (0, 10**7 + 1)),
    (OptimalTree, "leaves", (1,), (0,)),
    (Decaying, "decay", (0.0, BELOW_1), (-ABOVE_0, 1.0)),
    (lambda n: Secure(n), "reward_grid", (2, 2**20), (1, 3, 2**21)),
    (lambda n: Seeded(n), "seed", (0, 2**100), (-1, 0.5)),
    (lambda n: Seeded(0, n), "run", (0,), (-1, None)),
    (lambda n: Seeded(0, 0, n), "batch", (0, None), (-1,)),
    (lambda n: Schedule(n), "users", (1, None), (0,)),
    (Schedule.one_shot, "users", (1,), (0, None)),
    (lambda x: Schedule(9, growth=x), "growth", (1.0,), (math.nextafter(1, 0), math.inf)),
    (lambda n: Schedule(9, max_releases=n), "max_releases", (1,), (0,)),
    (times, r"times[-1]", (1, 9), (10, 99)),
    (lambda n: times(n, final=True), r"times[-1]", (1, 10), (11, 99)),
    (lambda x: shares(x, 0.5), "pooled_shares", (ABOVE_0, BELOW_1), (0.0, 1.0, -0.5, 1.5)),
    (lambda x: shares(0.5, x), "pooled_shares", (ABOVE_0, BELOW_1), (0.0, 1.0, -0.5, 1.5)),
    (lambda n: exact.round_to_grid([0.5], n), "grid", (1, 2, 2**40), (0, 3, 2**41)),
    (lambda n: exact.discrete_laplace(1.0, n), "size", (0, (0, 2)), (-1,)),
    (lambda b: exact.discrete_laplace(b, 1), "scale", (2.0**-20, 2.0**40), (2.0**-20.001, 2.0**40.001)),
    (lambda b: exact.discrete_gaussian(b, 1), "sigma", (2.0**-20, 2.0**40), (2.0**-20.001, 2.0**40.001)),
    (
        lambda x: dataclasses.replace(no_guarantee("seeded"), epsilon_nominal=x),
        "epsilon_nominal", (0.0, None), (-ABOVE_0, math.inf),
    ),
    (lambda n: no_guarantee("seeded", episodes=n), "episodes", (1,), (0,)),
    (
        lambda n: MechanismRecord("sum", "laplace", {"v": 2.0}, {"v": 1.0}, 0.5, n),
        "levels", (1,), (0, 1.0),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("made", "name", "inside", "outside"), ENDS)
def test_ends_of_ranges(
    made: Callable[[Any], object], name: str, inside: tuple[Any, ...], outside: tuple[Any, ...]
) -> None:
    for value in inside:
        made(value)
    for value in outside:
        with pytest.raises(ValueError, match=re.escape(name)):
            made(value)


def test_a_release_has_two_thousand_million_cells_at_most() -> None:
    """20 000 states with 5 actions have 2e9 transitions of one step; with visits it is too much."""
    most = {"stationary": True, "visits": False, "known_rewards": True}
    assert CountQuery(Layout(20_000, 5, 7), **most).cells == 2 * 10**9  # type: ignore[arg-type]
    for more in ({**most, "visits": True}, {**most, "known_rewards": False}, {**most, "stationary": False}):
        with pytest.raises(ValueError, match="at most 2e"):
            CountQuery(Layout(20_000, 5, 7), **more)  # type: ignore[arg-type]
    query = asked()
    query.check_cells(query.cells)
    with pytest.raises(ValueError, match=r"need 120 cells \(H=4, pairs=6, S=3\): at most 119 are"):
        query.check_cells(query.cells - 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": True}, "first = True: must be false when stationary is false"),
        ({"known_rewards": True, "center_rewards": True}, "center_rewards = True: must be false when known"),
        ({"pooled": "all", "stationary": True}, "pooled = 'all': must be 'none' when stationary is true"),
        ({"pooled_share": 0.5}, "pooled_share = 0.5: must be None when pooled is 'none'"),
        ({"pooled": "last"}, "pooled = 'last': must be one of 'none', 'all', 'first'"),
        *(
            ({"step": 1, **more}, "step = 1: must be None with stationary, pooled or groups")
            for more in ({"stationary": True}, {"pooled": "first"}, {"groups": 1, "clip": 1.0})
        ),
        *(({name: 1}, f"{name} = 1: must be true or false") for name in ("stationary", "visits", "first")),
    ],
)
def test_questions_that_contradict_themselves_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        asked(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"stationary": True, "first": True, "episodes": 7, "visits": False, "reward_share": 0.3},
        {"pooled": "first", "pooled_share": 0.6, "known_rewards": True},
        {"groups": 3, "clip": 1.5, "return_share": 0.4, "center_rewards": True},
        {"step": 2},
        {"cut": 1.5, "visits": False, "center_rewards": True},
    ],
)
def test_a_copy_asks_the_same_and_shares_no_array(options: dict[str, Any]) -> None:
    mask = np.array([[True, False], [True, True], [False, True]])
    query = CountQuery(Layout(3, 2, 4, mask), **options)
    again = query.copy()
    for item in fields(CountQuery):
        assert getattr(again, item.name) == getattr(query, item.name), item.name
    assert again.layout is not query.layout
    for name in ("mask", "row_state", "row_index"):
        assert not np.shares_memory(getattr(again.layout, name), getattr(query.layout, name))
    assert not np.shares_memory(again.offsets, query.offsets)


DEFAULTS: dict[type, dict[str, Any]] = {
    Layout: {"mask": None},
    CountQuery: {
        **dict.fromkeys(("stationary", "center_rewards", "known_rewards", "first"), False), "visits": True,
        **dict.fromkeys(("reward_share", "pooled_share", "step"), None), "pooled": "none",
        "groups": 0, "clip": 0.0, "cut": 0.0, "return_share": 0.15, "episodes": 1,
    },
    Plan: {
        "users": 1, "context": {}, "last": True, "number": 0, "forget": False,
        **dict.fromkeys(("group", "return_share", "cut"), None),
    },
    Schedule: {
        **dict.fromkeys(("times", "growth", "max_releases", "pooled_shares", "queries"), None),
        "answers": 0, "reads": "sums", "plans": "any", "final": False,
    },
    Estimate: {"estimand": "sum", "covers": 0, "effective": 0.0},
    Release: {"measurement": None},
    Message: {"trajectory": None, "message": None},
    Batches: {"decay": 0.0, "participations": 1, "separation": 1},
    Prefixes: {"leaf": "batch"},
    Stated: {"delta": None, "epsilon": None, "numerical": False},
    CountMechanism: {
        "noise": None, **dict.fromkeys(("scales", "reward_grid", "release_scales"), None),
        "stated": Stated(), "stored": False,
    },
    SignedDigits: {"levels": 1},
    Tree: {"gaussian": False},
    Decaying: {"decay": 0.0},
    Seeded: {"seed": 0, "run": 0, "batch": None, "kind": "seeded"},
    Secure: {"reward_grid": 1024, "kind": "secure"},
    MechanismRecord: {"levels": 1, "exchanges": ()},
}  # fmt: skip


@pytest.mark.parametrize("kind", DEFAULTS, ids=lambda kind: kind.__name__)
def test_what_is_left_out_is_what_the_page_says(kind: type) -> None:
    """Who leaves an argument out relies on it: no noise that is not asked for, one user, one episode."""
    found = {}
    for item in fields(kind):
        if item.default is not MISSING:
            found[item.name] = item.default
        elif item.default_factory is not MISSING:
            found[item.name] = item.default_factory()
    assert found == DEFAULTS[kind]


CALLS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (CountQuery.contribution, {"group": 0, "cut": None}),
    (Schedule.one_shot, {"plans": "any"}),
    (Schedule.leaf_at, {"leaf": "batch"}),
    (Layout.from_rows, {"fill": 0.0}),
    (MechanismRecord.of, {"levels": 1, "exchanges": (), "rounding": 0.0, "overlap": 1.0}),
    (joint_loss, {"rounding": 0.0}),
    (
        guarantee_of,
        {"delta": None, "epsilon_nominal": None, "users_public": True, "episodes": 1},
    ),
    (ChannelSession.absent, {"users": 1}),
    (add_records, {"cut": 0.0}),
    (noise_vector, {}),
    (SecureRng.laplace, {"grid": None}),
    (SecureRng.normal, {"grid": None}),
    *((draw, {"source": os.urandom}) for draw in (exact.discrete_laplace, exact.discrete_gaussian)),
    (exact.round_to_grid, {"source": os.urandom}),
    (checks.real, {"low": -math.inf, "high": math.inf, "open_low": False, "open_high": False}),
    (checks.integer, {"low": None, "high": None}),
]


@pytest.mark.parametrize(("call", "defaults"), CALLS, ids=lambda one: getattr(one, "__qualname__", ""))
def test_calls_that_leave_something_out(call: Callable[..., Any], defaults: dict[str, Any]) -> None:
    """Noise is the system's, a range has no ends, a user is in the first group and has one episode."""
    given = inspect.signature(call).parameters.values()
    assert {one.name: one.default for one in given if one.default is not one.empty} == defaults


# ------------------------------------------------------------------------------ what is counted


def test_of_one_step_only_its_record_is_counted() -> None:
    query = asked(step=2)
    assert (query.slots, query.counted, query.counted_steps) == (1, slice(2, 3), 1)
    assert (asked().slots, asked().counted, asked().counted_steps) == (4, slice(0, 4), 4)
    assert (asked(stationary=True).slots, asked(stationary=True).counted_steps) == (1, 4)


@pytest.mark.parametrize(("states", "horizon"), [(3, 4), (4, 3), (2, 2)])
def test_first_visits_are_at_most_one_a_state_and_one_a_step(states: int, horizon: int) -> None:
    assert CountQuery(Layout(states, 2, horizon)).first_records == min(states, horizon)
