"""Division of users into two groups by a keyed hash of their identifiers.

A user is in the second group if the keyed hash (BLAKE2b, 64 bits) of the identifier, as text, is below
``share`` times 2^64. The group depends only on the identifier and the key. It does not depend on the record,
the order of rows, or other users. All rows of a user are in one group. The guarantee holds for every key and
does not require a secret key: neighbouring data sets have the same identifiers, and therefore the same
groups.

However, the key is random, drawn for one run after the data exist, and not stored. There are two reasons:

- identifiers can be in the order of admission, or contain a site or a year. The estimates assume that the two
  groups differ only by chance. This requires a hash whose key is independent of the data;
- the group of a known user cannot be determined later.

The numbers of users in the groups depend only on identifiers and key. Therefore they are as public as the
number of all users.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.rng import Randomness, Seeded


def group_key(randomness: Randomness) -> bytes:
    """Return the key of a run: 32 random bytes, or bytes computed from the seed of a simulation.

    randomness : source of the noise of the run.
    """
    if isinstance(randomness, Seeded):
        return hashlib.sha256(b"discreet groups" + randomness.keys.noise.tobytes()).digest()
    return secrets.token_bytes(32)


def in_second_group(names: Iterable[Any], key: bytes, share: float) -> NDArray[np.bool_]:
    """Return an (n,) mask of the users in the second group.

    Parameters
    ----------
    names : iterable
        Identifiers of n users, as text or integers.
    key : bytes
        Key of the hash, 16 to 64 bytes.
    share : float
        Expected share of users in the second group, in (0, 1).

    Raises
    ------
    ValueError
        If the key has another length, or ``share`` is out of range.
    """
    share = checks.real("share", share, 0.0, 1.0, open_low=True, open_high=True)
    if not isinstance(key, bytes) or not 16 <= len(key) <= 64:
        raise ValueError("key: must be 16 to 64 bytes")
    below = math.floor(share * 2.0**64)
    hashes = (hashlib.blake2b(str(name).encode(), digest_size=8, key=key).digest() for name in names)
    return np.array([int.from_bytes(one, "big") < below for one in hashes], dtype=bool)
