"""Service, shuffler and database killed at random under load: a few rounds of
``benchmarks/studies/service_kills.py``.

``DISCREET_KILLS`` says how many kills (default 12).
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import serving  # noqa: F401  (skips where the service's packages are missing)

from benchmarks.studies.service_kills import trial

pytestmark = [pytest.mark.service, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("DISCREET_KILLS", "12"))
POSTGRES = bool(
    (shutil.which("initdb") or list(Path("/usr/lib/postgresql").glob("*/bin/initdb")))
    and find_spec("psycopg")
)


@pytest.mark.parametrize("trust", ["central", "shuffle", "contexts"])
def test_nothing_is_lost_or_doubled(trust: str) -> None:
    kills = trial(max(2, KILLS // 2), [trust], POSTGRES)
    assert sum(kills.values()) >= 2
