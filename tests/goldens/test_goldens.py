"""Nothing changed: every case is computed anew and compared with what was kept."""

import numpy as np
import pytest

from . import recording
from .cases import CASES

pytestmark = pytest.mark.usefixtures("figures_are_sketched")  # of figures, names are kept
KEPT = recording.read()
_WHY = (
    f"{recording.COMMAND} rewrites goldens. That is only done where a fault was mended, and it is named "
    "beside the change. A change of form changes no number."
)


def test_the_file_holds_exactly_the_declared_cases() -> None:
    assert sorted(KEPT) == sorted(CASES), _WHY


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    found = list(recording.differences(KEPT.get(name), recording.plain(CASES[name]())))
    assert not found, f"{name}: " + "; ".join(found[:10]) + f"\n{_WHY}"


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        (1.0, 1.0 + 1e-11, True),
        (1.0, 1.0 + 1e-8, False),
        (1, 2, False),
        ("μ = 0.2", "μ = 0.3", False),
        ("ε = 0.9999679998428307", "ε = 0.9999679998428275", True),
        ("ε = 0.9999679998428307", "ε = 0.9999678998428275", False),
        ("ε = 0.9999679998428307", "μ = 0.9999679998428307", False),
        ({"a": 1}, {"b": 1}, False),
        ([1.0], [1.0, 2.0], False),
    ],
)
def test_a_change_is_seen(before: object, after: object, equal: bool) -> None:
    found = list(recording.differences(recording.plain(before), recording.plain(after)))
    assert (not found) == equal


@pytest.mark.parametrize("integers", [True, False])
def test_a_change_of_one_entry_is_seen(integers: bool) -> None:
    table = np.arange(60).reshape(3, 4, 5) + (0 if integers else 0.25)
    for i in range(60):
        other = table.copy()
        other.ravel()[i] += 1 if integers else 1e-4
        assert list(recording.differences(recording.plain(table), recording.plain(other)))
    rounded = table * (1.0 + 1e-13) if not integers else table
    assert not list(recording.differences(recording.plain(table), recording.plain(rounded)))
    swapped = table[:, ::-1].copy()
    assert list(recording.differences(recording.plain(table), recording.plain(swapped)))
