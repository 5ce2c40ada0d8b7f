"""Records of randomized response."""

import pytest

from discreet.accounting.randomized_response_event import ReportRecord


@pytest.mark.parametrize(
    ("alphabet", "message"),
    [
        *((("subset", 12, 3, own, 0), "own = ") for own in (0, -1, 2**53, 2**53 + 1, 3**53 - 1)),
        *((("unary", 12, 1, own, 1), "own = ") for own in (0, 2**53, 3**53 - 1)),
        *((("unary", 12, 1, 2**52, other), "other = ") for other in (0, -1, 2**53, 3**53 - 1)),
        *((("subset", 12, size, 2**52, 0), "size = ") for size in (0, 12)),
        (("subset", 0, 1, 2**52, 0), "elements = 0"), (("krr", 12, 1, 2**52, 0), "alphabets"),
    ],
)  # fmt: skip
def test_what_is_no_probability_has_no_loss(alphabet, message):
    """Numerators over 2^53: a report that is certain, or more than certain, hides nothing."""
    with pytest.raises(ValueError, match=message):
        ReportRecord("reports", 1, {"moves": alphabet})
    with pytest.raises(ValueError, match="reports = 0"):
        ReportRecord("reports", 0, {"moves": ("subset", 12, 3, 2**52, 0)})
