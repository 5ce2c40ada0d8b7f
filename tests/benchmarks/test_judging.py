"""The sentence "better than your rule" in worlds where it is false: nothing helps, a cause is hidden."""

import pytest

from benchmarks.studies.hidden_causes import Releases, worlds
from benchmarks.studies.judging import row, summary
from discreet.utils.markdown_table import markdown

DRAWS = 5


def rows(group: str, many: int) -> list[dict]:
    """A few seeded draws of each world of a group."""
    found = []
    for name, world in list(worlds(group, 500, many).items())[:many]:
        releases = Releases(name, world, 67)
        found += [{"group": group, **row(releases, 20_000, 3.0, draw)} for draw in range(DRAWS)]
    return found


@pytest.mark.parametrize("group", ["persistent", "no-cause"])
def test_it_is_not_said_where_nothing_helps(group: str) -> None:
    """Seeds are fixed, so that no run can fail by chance. A lasting cause, or none."""
    found = rows(group, 2)
    assert not any(one["said"] for one in found)
    if group == "persistent":  # though the intervals alone would say it
        assert any(one.get("less above", False) for one in found)


def test_where_it_is_said_the_condition_excuses_it() -> None:
    """A cause at each step of strength 1.5 by which the bound is attained: the printed factor is below it."""
    found = rows("bound", 1)
    said = [one for one in found if one["said"]]
    assert said
    assert all(1.1 <= one["factor"] <= 1.5 for one in said)
    assert not any(one["false"] for one in found)
    assert summary(found).count("\n") == markdown([("a",), ("b",)]).count("\n")
