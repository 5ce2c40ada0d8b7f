"""Cross products of parameters: every two values, or each, in the fast suite; all of them in the slow one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

Axis = Sequence[Any] | Mapping[str, Any]  # values, or values by what they are called


def pairwise(*axes: Axis) -> list[Any]:
    """All combinations, for ``parametrize``; those that no pair of values needs are marked ``statistics``.

    Chosen greedily, always the first combination that brings the most new pairs.
    """
    named = _named(axes)
    every = list(itertools.product(*named))
    pairs = {one: frozenset(itertools.combinations(enumerate(one), 2)) for one in every}
    missing, chosen = frozenset[Any]().union(*pairs.values()), set[tuple[str, ...]]()
    while missing:
        best = max(every, key=lambda one: len(pairs[one] & missing))
        missing -= pairs[best]
        chosen.add(best)
    return _marked(named, chosen)


def by_turns(*axes: Axis) -> list[Any]:
    """As :func:`pairwise`, for what takes long: the k-th values of all axes, the short ones over and over."""
    named = _named(axes)
    turns = range(max(map(len, named)))
    return _marked(named, {tuple([*axis][k % len(axis)] for axis in named) for k in turns})


def every_second(values: Axis, first: int = 0) -> list[Any]:
    """Every second value, and the others in the slow suite: for one fault that is built into many things."""
    (named,) = _named([values])
    return _marked([named], {(name,) for name in [*named][first::2]})


def _named(axes: Sequence[Axis]) -> list[Mapping[str, Any]]:
    return [axis if isinstance(axis, Mapping) else {str(value): value for value in axis} for axis in axes]


def _marked(named: Sequence[Mapping[str, Any]], chosen: set[tuple[str, ...]]) -> list[Any]:
    return [
        pytest.param(
            *(axis[name] for axis, name in zip(named, one, strict=True)),
            marks=() if one in chosen else pytest.mark.statistics,
            id="-".join(one),
        )
        for one in itertools.product(*named)
    ]
