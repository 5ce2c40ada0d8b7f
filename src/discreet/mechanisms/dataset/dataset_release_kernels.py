"""Compiled check of the users of stored episodes: their order, and each user's number of episodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import kernel

Ints = NDArray[np.int64]

# kinds of errors
FALLS, TOO_MANY = 1, 2


@kernel
def check_users(
    user: Ints, any_before: bool, last: int, episodes: int, most: int
) -> tuple[int, int, int, int]:
    """Follow the users of some episodes: (kind, index of the first error; new users, episodes of the last).

    ``last``, ``episodes`` : the last user of the episodes before, if ``any_before``, and the number of their
    episodes. Without an error kind is 0 and the index -1.
    """
    new = 0
    for i in range(user.shape[0]):
        if any_before and user[i] == last:
            episodes += 1
            if episodes > most:
                return TOO_MANY, i, new, episodes
        elif any_before and user[i] < last:
            return FALLS, i, new, episodes
        else:
            any_before, last, episodes = True, user[i], 1
            new += 1
    return 0, -1, new, episodes
