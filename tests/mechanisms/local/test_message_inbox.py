"""Messages of local users: no message dominates the sum, and sessions have numbers of their own."""

import numpy as np
import pytest

from discreet.mechanisms.local.message_inbox import REACH, local_message, session_number


def test_cells_beyond_the_reach_of_a_device_are_refused() -> None:
    reach = 3 + REACH * np.array([1.0, 0.5])
    np.testing.assert_array_equal(local_message(reach, reach), reach)
    with pytest.raises(ValueError, match=r"message\.message\[1\] = -23\.1: must be within 23"):
        local_message(np.array([0.0, -23.1]), reach)
    for bad in ([0.0], [0.0, np.nan], [0.0, np.inf], ["a", "b"]):
        with pytest.raises(ValueError, match=r"message\.message"):
            local_message(np.array(bad), reach)


def test_numbers_of_sessions_follow_from_their_keys_alone() -> None:
    keys = np.arange(8, dtype=np.uint64).reshape(4, 2)
    numbers = [session_number(key) for key in keys]
    assert numbers == [session_number(key.copy()) for key in keys]
    assert len(set(numbers)) == 4
    assert all(0 <= number < 2**64 for number in numbers)
