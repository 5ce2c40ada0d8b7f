"""Thousands of simulated people by requests of their own, in any order: the policies of a simulation.

``DISCREET_PEOPLE`` says how many (default 2 000); S = 6, A = 2, H = 20, both trust models.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from serving import a_study, over_http, same_plans, simulated

pytestmark = [pytest.mark.service, pytest.mark.timeout(3600)]

PEOPLE = int(os.environ.get("DISCREET_PEOPLE", "2000"))


@pytest.mark.parametrize("trust", ["central", "local"])
def test_thousands_of_people(tmp_path: Path, trust: str) -> None:
    study = a_study(
        trust=trust,
        world={"states": 6, "actions": 2, "horizon": 20, "users": PEOPLE},
        schedule={"replan_growth": 1.2},
        rehearsal={"env": "riverswim", "options": {"rewards": "bernoulli"}, "seed": 3},
    ).for_dry_run()
    begun = time.perf_counter()
    found = over_http(study, tmp_path, 500, 16)
    seconds = time.perf_counter() - begun
    same_plans(found, simulated(study))
    print(f"\n{trust}: {PEOPLE} people, {len(found)} plans, {study.releases} releases, {seconds:.0f} s")
