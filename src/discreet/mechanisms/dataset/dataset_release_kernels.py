"""Compiled check of the users of stored episodes: their order, and each user's number of episodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import kernel

Ints = NDArray[np.int64]

# Kinds of errors that :func:`check_users` returns.
FALLS, TOO_MANY = 1, 2


@kernel
def check_users(
    user: Ints, any_before: bool, last: int, episodes: int, most: int
) -> tuple[int, int, int, int]:
    """Check the users of some episodes, given the last user of the previous episodes.

    Returns (kind of the first error, index of its episode, number of new users, number of episodes of the
    last user). Without an error, the kind is 0 and the index is -1.

    user : user number of each episode.

    any_before : True if there are previous episodes.

    last, episodes : last user of the previous episodes, and number of this user's episodes. They are used
        only if ``any_before`` is True.

    most : largest number of episodes that a user may have.
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
