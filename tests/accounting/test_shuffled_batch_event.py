"""Records of shuffled batches: they are composed as losses, and lists of a file are of stated types."""

import pytest

from discreet.accounting.binomial_noise import COIN, Flips
from discreet.accounting.binomial_noise_event import BinomialRecord
from discreet.accounting.shuffled_batch_event import listed, typed


def test_a_user_is_in_one_batch_and_losses_are_composed() -> None:
    record = BinomialRecord("bits", ((("visits", Flips(9, 1, COIN // 2)),),), ((("visits", 1, 1),),))
    assert (record.norm, record.numerical, record.levels) == ("losses", True, 1)


def test_lists_of_a_file_are_of_exactly_the_stated_types() -> None:
    assert typed(["a", 1, False], (str, int, bool)) == ("a", 1, False)
    for values in (["a", True], ["a"], ["a", 1.0], ("a", 1), None):
        with pytest.raises(ValueError, match="record: .*must be"):
            typed(values, (str, int))
    with pytest.raises(ValueError, match="must be a list"):
        listed({"a": 1})
