"""Ranges of options: what is searched, what is not, and that draws depend on seed, trial and name only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from discreet import registry
from discreet.experiments.search_space import NOT_SEARCHED, RANGES, Range, draw, search_space, usual_space

LEARNERS = [one.name for one in registry.entries("learner") if one.plugin is None]


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_has_a_space_that_contains_its_defaults(learner: str) -> None:
    found = registry.entry("learner", learner)
    space, defaults = search_space(learner), registry.defaults_of(found)
    assert space == usual_space(learner)
    assert not {*space} & {*NOT_SEARCHED, *found.fixed, *getattr(found.factory(), "REFUSES", ())}
    assert not {"epsilon", "delta", "replan_every", "replan_growth", "reward_share"} & {*space}
    for name, where in space.items():
        value = defaults.get(name)
        if where.values:
            assert value is None or value in where.values
        elif isinstance(value, float):
            assert where.low <= value <= where.high, name


def test_tables_name_options_that_exist() -> None:
    known = {
        name
        for one in registry.entries("learner")
        for option in registry.options_of(one.factory())
        for name in (option, f"{one.name}.{option}")
    }
    assert {*RANGES, *NOT_SEARCHED} <= known


@pytest.mark.parametrize(
    ("where", "place", "value"),
    [
        (Range(("a", "b")), 0.49, "a"),
        (Range(("a", "b")), 0.51, "b"),
        (Range(low=0.01, high=1.0, log=True), 0.5, 0.1),
        (Range(low=0.0, high=4.0), 0.25, 1.0),
        (Range(low=1.0, high=100.0, log=True, whole=True), 0.25, 3),
    ],
)
def test_a_place_in_a_range(where: Range, place: float, value: Any) -> None:
    assert where.at(place) == value
    assert type(where.at(place)) is type(value)
    assert Range(**where.to_dict()) == where


def test_a_range_says_what_it_is() -> None:
    assert str(Range((False, True))) == "false, true"
    assert str(Range(low=0.01, high=1.0, log=True)) == "0.01 to 1, log-uniform"
    assert str(Range()) == "0 to 1, uniform"
    with pytest.raises(ValueError, match=r"low, high = 1\.0, 1\.0: must be two numbers with low < high"):
        Range(low=1.0, high=1.0)
    with pytest.raises(ValueError, match=r"low = 0\.0: must be above 0 if log is True"):
        Range(log=True)


def test_draws_depend_on_seed_trial_and_name() -> None:
    space = search_space("dp-ucbvi")
    assert draw(space, 31, 1) == {"bonus_scale": 0.186, "cap": "none", "priv_scale": 0.0002602}
    assert draw(space, 31, 1) != draw(space, 32, 1)
    assert draw(space, 31, 1) != draw(space, 31, 1, attempt=1)
    fewer = {name: where for name, where in space.items() if name != "cap"}
    assert draw(fewer, 31, 1) == {"bonus_scale": 0.186, "priv_scale": 0.0002602}
    one = {"eta": RANGES["eta"]}
    drawn = [draw(one, 0, i)["eta"] for i in range(64)]  # a single option is drawn in every trial
    assert len({*drawn}) == 64
    assert 0.001 <= min(drawn) < 0.01
    assert 0.1 < max(drawn) <= 1.0


def test_an_option_that_is_given_is_not_searched() -> None:
    assert "bonus_scale" not in search_space("dp-ucbvi", ["bonus_scale"])


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("bonus_scale", "0.1:1", Range(low=0.1, high=1.0, log=True)),
        ("bonus_scale", (0.0, 1.0), Range(low=0.0, high=1.0)),
        ("bonus_scale", [0.1, 0.3, 1.0], Range((0.1, 0.3, 1.0))),
        ("bonus_scale", None, RANGES["bonus_scale"]),
        ("bonus_scale", Range(low=2.0, high=3.0), Range(low=2.0, high=3.0)),
        ("post", "lp,raw", Range(("lp", "raw"))),
        ("replan_every", "10:1000", Range(low=10.0, high=1000.0, log=True, whole=True)),
        ("stationary", None, Range((False, True))),
    ],
)
def test_the_user_names_options_and_ranges(name: str, value: Any, found: Range) -> None:
    assert search_space("dp-ucbvi", search={name: value})[name] == found


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({"eta": None}, "search = 'eta': must be an option of dp-ucbvi: bonus_scale, "),
        ({"preset": None}, "search = 'preset': must be an option"),
        (
            {"replan_growth": None},
            "search = 'replan_growth': must have a range, such as replan_growth=0.01:1",
        ),
        ({"bonus_scale": "1:0.1"}, "search = bonus_scale='1:0.1': must be a range of bonus_scale"),
        ({"post": "lp,row"}, "search post = 'row': must be"),
        ({"cap": None}, "search = 'cap': must not be an option that is given a value, too"),
    ],
)
def test_bad_searches_are_refused(search: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        search_space("dp-ucbvi", ["cap"], search)


@dataclass(frozen=True)
class Declares:
    """A learner of one's own."""

    SEARCH = {"rate": (0.1, 10.0), "depth": [1, 2]}  # noqa: RUF012 - a declaration, as users write it
    rate: float = 1.0
    depth: int = 1
    other: float = 3.0
    kind: Literal["a", "b"] | None = None


@dataclass(frozen=True)
class DeclaresNothing:
    """A learner of one's own."""

    other: float = 3.0


def test_a_class_declares_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_added", dict(registry._added))
    registry.register("learner", "declares", Declares)
    registry.register("learner", "declares-nothing", DeclaresNothing)
    assert search_space("declares") == {
        "rate": Range(low=0.1, high=10.0, log=True), "depth": Range((1, 2)), "kind": Range(("a", "b")),
    }  # fmt: skip
    with pytest.raises(ValueError, match="learner = 'declares-nothing': has no option that can be searched"):
        search_space("declares-nothing")
    assert search_space("declares-nothing", search={"other": (1.0, 2.0)}) == {
        "other": Range(low=1.0, high=2.0, log=True)
    }
