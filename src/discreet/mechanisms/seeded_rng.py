"""Random keys of a run, its noise, and the random generator of a simulated device. For simulation only.

Anyone who knows the seed can remove the noise. Every guarantee of a seeded session states this.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from discreet.core.count_mechanism import CountMechanism
from discreet.core.noise.noises import is_declared
from discreet.core.raw_encoder import noise_vector
from discreet.core.releases import Floats
from discreet.core.rng import Key, RunKeys
from discreet.mechanisms import seeded_noise_kernels as kernels
from discreet.utils import random_streams_kernels as streams


def keys_of(seed: int, run: int, batch: int | None) -> RunKeys:
    """Return the random keys of a run, one for each role."""

    def secret(role: bytes) -> Key:
        address = f"{int(seed)}/{int(run)}".encode()
        if batch is not None and role == b"noise":
            address += f"/{int(batch)}".encode()
        digest = hashlib.blake2b(address, digest_size=16, person=b"discreet/" + role).digest()
        return np.frombuffer(digest, "<u8").astype(np.uint64)

    return RunKeys(streams.run_key(seed, run), secret(b"noise"), secret(b"ties"))


def cell_noise(mechanism: CountMechanism, key: Key, i: int, j: int, factor: float, scales: Floats) -> Floats:
    """Return the noise of every cell of a mechanism at the address (key, i, j) of the random stream.

    Family f has scale factor * scales[f].
    """
    query = mechanism.query
    if mechanism.noise is not None and is_declared(mechanism.noise):
        return noise_vector(query, mechanism, factor, SeededRng(key, i, j), scales)
    noise = np.empty(query.cells)
    kernels.fill_noise(mechanism.family, key, i, j, factor, query.offsets, scales, noise)
    return noise


def _no_grid(grid: int | None) -> None:
    if grid is not None:
        raise ValueError(f"grid = {grid}: seeded coins have none; this session needs SecureRng()")


class SeededRng:
    """Random generator of one simulated user's device. The generator reads the stream (noise, user, level) of
    a run.

    key : (2,) uint64, noise key of the run (``dr.Seeded(seed, run).keys.noise``). user : number of the user,
        starting at 0. level : second part of the stream's address.

    Methods raise ``ValueError`` if a grid is requested, because a grid requires exact noise.
    """

    exact = False

    def __init__(self, key: Key, user: int, level: int = 0) -> None:
        self._state = streams.open_at(key, streams.ROLE_NOISE, user, level)

    def laplace(self, scale: float, size: int, grid: int | None = None) -> Floats:
        """Return ``size`` independent centred Laplace variables of this scale."""
        _no_grid(grid)
        out = np.empty(size)
        streams.fill_laplace(self._state, scale, out)
        return out

    def normal(self, scale: float, size: int, grid: int | None = None) -> Floats:
        """Return ``size`` independent centred normal variables of standard deviation ``scale``."""
        _no_grid(grid)
        out = np.empty(size)
        streams.fill_normal(self._state, scale, out)
        return out

    def rounded(self, rewards: Floats, grid: int | None) -> Floats:
        """Return the rewards unchanged, because simulated rewards are not rounded."""
        _no_grid(grid)
        return rewards

    def _word(self) -> int:
        return int(streams.draw_words(self._state, 1)[0])

    def below(self, n: int) -> int:
        """Return a uniform integer in [0, n), up to a bias of n 2^-64."""
        return (self._word() * n) >> 64

    def flip(self, numerator: int) -> bool:
        """Return True with probability numerator / 2^53."""
        return (self._word() >> 11) < numerator

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return ``size`` independent uniform words of 64 bits."""
        return np.asarray(streams.draw_words(self._state, size))
