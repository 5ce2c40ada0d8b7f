"""Users of stored episodes: their order and number, against a plain account."""

import numpy as np
import pytest

from discreet.mechanisms.dataset.dataset_release_kernels import FALLS, TOO_MANY, check_users


def test_users_in_parts_are_counted_as_in_one() -> None:
    users = np.repeat([2, 5, 6, 90], [1, 3, 2, 3])
    for cut in range(len(users) + 1):
        kind, at, new, episodes = check_users(users[:cut], False, 0, 0, 3)
        assert (kind, at) == (0, -1)
        last = int(users[cut - 1]) if cut else 0
        kind, at, more, episodes = check_users(users[cut:], cut > 0, last, episodes, 3)
        assert (kind, at, new + more, episodes) == (0, -1, 4, 3)


@pytest.mark.parametrize(
    ("users", "most", "found"),
    [([1, 3, 2], 1, (FALLS, 2)), ([1, 1, 1], 2, (TOO_MANY, 2)), ([4, 4], 1, (TOO_MANY, 1))],
)
def test_the_first_error_is_named(users: list[int], most: int, found: tuple[int, int]) -> None:
    assert check_users(np.array(users), False, 0, 0, most)[:2] == found
    assert check_users(np.array([3]), True, 4, 1, 5)[:2] == (FALLS, 0)
