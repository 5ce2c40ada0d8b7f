"""Random generators of simulated devices."""

import numpy as np
from numpy.typing import NDArray


class SimulatedCoins:
    """Repeatable random generator of one simulated user. Anyone who knows the seed can remove the noise."""

    def __init__(self, seed: int, user: int = 0) -> None:
        self._source = np.random.Philox(np.random.SeedSequence([seed, user]))

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return ``size`` independent uniform words of 64 bits."""
        return np.asarray(self._source.random_raw(size), np.uint64)
