"""The public shape: what is checked, what is kept, and the rows of admissible pairs."""

import numpy as np
import pytest

from discreet.core.layout import Layout

MASK = np.array([[True, False, True], [False, True, False]])


def test_the_mask_is_the_layouts_own() -> None:
    """The support of noise is fixed when a layout is built: the caller's array may change later."""
    mask = MASK.copy()
    layout = Layout(2, 3, 4, mask)
    mask[:] = True
    assert layout.rows == 3
    assert layout.mask is not None
    np.testing.assert_array_equal(layout.mask, MASK)
    with pytest.raises(ValueError, match="read-only"):
        layout.mask[0, 1] = True
    assert layout == Layout(2, 3, 4, MASK.tolist())  # type: ignore[arg-type]


def test_a_mask_that_admits_everything_is_no_mask() -> None:
    layout = Layout(2, 3, 4, np.ones((2, 3), bool))
    assert layout.mask is None
    assert layout == Layout(2, 3, 4)
    assert hash(layout) == hash(Layout(2, 3, 4))


def test_rows_are_the_admissible_pairs_in_order() -> None:
    layout = Layout(2, 3, 4, MASK)
    assert list(zip(layout.row_state, layout.row_action, strict=True)) == [(0, 0), (0, 2), (1, 1)]
    assert layout.state_ptr.tolist() == [0, 2, 3]
    assert layout.row_index.tolist() == [[0, -1, 1], [-1, 2, -1]]
    table = np.arange(4 * 2 * 3 * 2, dtype=float).reshape(4, 2, 3, 2)
    rows = layout.to_rows(table)
    assert rows.shape == (4, 3, 2)
    assert rows.flags.c_contiguous
    assert (layout.from_rows(rows)[:, ~MASK] == 0.0).all()
    back = layout.from_rows(rows, fill=-1.0)
    np.testing.assert_array_equal(back, np.where(MASK[None, :, :, None], table, -1.0))


@pytest.mark.parametrize("mask", [None, MASK])
def test_layouts_differ_where_anything_does(mask: np.ndarray | None) -> None:
    layout = Layout(2, 3, 4, mask)
    other = np.array([[True, True, True], [False, True, False]])
    for different in (Layout(2, 3, 5, mask), Layout(2, 3, 4, other), Layout(2, 4, 4), "layout"):
        assert layout != different
        assert different != layout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3, 4), "states = 0"),
        ((2, 0, 4), "actions = 0"),
        ((2, 3, 0), "horizon = 0"),
        ((2, 3, 4, MASK.T), "mask has shape"),
        ((2, 3, 4, [[True, True, True], [False, False, False]]), r"mask\[1\] admits no action"),
    ],
)
def test_what_is_no_layout_is_refused(arguments: tuple, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=message):
        Layout(*arguments)
