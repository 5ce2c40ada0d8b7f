"""``learn``, killed two hundred times at random: nothing half-written, nothing drawn that is not known.

No randomness enters what is asserted; the moments are random, so that all places are hit in the long run.
"""

from pathlib import Path

import pytest
from kills import kill_at_random

from discreet.core.layout import Layout
from discreet.data.schema import Schema

SCHEMA = Schema("ward", "patient", Layout(4, 2, 3), terminal=(3,), low=-1.0)


@pytest.mark.statistics
@pytest.mark.usefixtures("figures_are_sketched")
@pytest.mark.parametrize("part", range(4))
def test_fifty_kills(part: int, tmp_path: Path) -> None:
    assert kill_at_random(SCHEMA, tmp_path, 50, seed=part) >= 1
