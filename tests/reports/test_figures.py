"""Numbers in reports: shares are clipped, and small numbers keep their digits."""

from discreet.reports.figures import number, percent, share_of


def test_numbers_are_for_readers() -> None:
    assert [share_of(value) for value in (-0.2, 0.25, 1.7)] == [0.0, 0.25, 1.0]
    assert percent(0.125) == "12.5 %"
    assert [number(value) for value in (0.0, 0.5, -2.0, 0.00025, -0.00025)] == [
        "0.000", "0.500", "-2.000", "2.5e-04", "-2.5e-04",
    ]  # fmt: skip
