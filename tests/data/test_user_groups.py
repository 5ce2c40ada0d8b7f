"""Two groups of users: a function of identifier and key only, in the share that is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.core.rng import Secure, Seeded
from discreet.data.user_groups import group_key, in_second_group

KEY = bytes(range(32))


def test_groups_depend_on_identifier_and_key_only() -> None:
    names = [f"P{i}" for i in range(400)]
    whole = in_second_group(names, KEY, 0.5)
    order = np.random.default_rng(0).permutation(400)
    assert (in_second_group([names[i] for i in order], KEY, 0.5) == whole[order]).all()
    assert (in_second_group(names[100:], KEY, 0.5) == whole[100:]).all()
    assert (in_second_group(range(50), KEY, 0.5) == in_second_group(map(str, range(50)), KEY, 0.5)).all()
    assert (in_second_group(names, KEY[::-1], 0.5) != whole).mean() > 0.3
    assert not (whole & ~in_second_group(names, KEY, 0.7)).any()  # a larger share only adds users


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_is_met_and_consecutive_identifiers_are_independent(share: float) -> None:
    """5 standard errors each; the key is fixed."""
    n = 40_000
    found = in_second_group(range(n), KEY, share)
    error = np.sqrt(share * (1 - share) / n)
    assert abs(found.mean() - share) < 5 * error
    z = (found - share) / np.sqrt(share * (1 - share))
    assert abs((z[1:] * z[:-1]).mean()) < 5 / np.sqrt(n)


def test_keys_are_new_or_follow_from_the_seed() -> None:
    assert group_key(Secure()) != group_key(Secure())
    assert group_key(Seeded(3)) == group_key(Seeded(3)) != group_key(Seeded(4))
    assert group_key(Seeded(3)) != group_key(Seeded(3, 1))
    assert len(group_key(Secure())) == 32


def test_other_arguments_are_refused() -> None:
    for share in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="share"):
            in_second_group(["a"], KEY, share)
    with pytest.raises(ValueError, match="key: must be 16 to 64 bytes"):
        in_second_group(["a"], b"short", 0.5)
