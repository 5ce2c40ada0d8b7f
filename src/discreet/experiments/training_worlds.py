"""Environments on which options are tuned. The leaderboard uses other environments.

CONTEXT_WORLDS is the list for learners that read real-valued contexts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TRAINING_WORLDS: tuple[tuple[str, str, str, Mapping[str, Any]], ...] = (
    ("dense", "dense S=6 #100", "random", {"states": 6, "seed": 100}),
    ("dense", "dense S=12 #103", "random", {"states": 12, "actions": 3, "seed": 103}),
    ("sparse", "sparse S=6 #102", "random", {"states": 6, "successors": 2, "seed": 102}),
    ("sparse", "sparse S=16 #105", "random", {"states": 16, "successors": 3, "seed": 105}),
    ("deep", "deep S=6 #106", "combination-lock", {"states": 6, "seed": 106}),
    ("deep", "deep S=12 #107", "combination-lock", {"states": 12, "depth": 8, "seed": 107}),
    ("control", "non-stationary S=6 #104", "random", {"states": 6, "stationary": False, "seed": 104}),
    ("control", "switching chain #101", "switching-chain", {"seed": 101}),
    (
        "rewarding",
        "rewarding 6x3 #110",
        "random",
        {"states": 6, "actions": 3, "horizon": 10, "rewarding": 18, "seed": 110},
    ),
    (
        "rewarding",
        "rewarding 8x2 #111",
        "random",
        {"states": 8, "actions": 2, "horizon": 20, "rewarding": 16, "seed": 111},
    ),
    (
        "rewarding",
        "rewarding 12x4 #112",
        "random",
        {"states": 12, "actions": 4, "horizon": 10, "rewarding": 48, "seed": 112},
    ),
    ("bandit", "bandit A=6 #113", "bandit", {"actions": 6, "seed": 113}),
    (
        "bandit",
        "contextual S=8 A=3 #114",
        "bandit",
        {"contexts": 8, "actions": 3, "horizon": 20, "seed": 114},
    ),
    ("episodic", "episodic S=6 #115", "random", {"terminal": 1, "rewarding": 4, "seed": 115}),
    (
        "episodic",
        "episodic S=12 #116",
        "random",
        {"states": 12, "actions": 3, "successors": 3, "terminal": 3, "rewarding": 20, "seed": 116},
    ),
    (
        "varying rows",
        "varying rows S=6 #117",
        "random",
        {"actions": 3, "rewarding": 9, "stationary": False, "varies": "rows", "seed": 117},
    ),
)

CONTEXT_WORLDS: tuple[tuple[str, str, str, Mapping[str, Any]], ...] = (
    ("contexts", "shared d4 A4 #120", "shared-contexts", {"dimension": 4, "actions": 4, "seed": 120}),
    ("contexts", "shared d8 A3 #121", "shared-contexts", {"dimension": 8, "actions": 3, "seed": 121}),
    ("contexts", "shared d12 A8 #122", "shared-contexts", {"dimension": 12, "actions": 8, "seed": 122}),
    ("contexts", "per action p4 A4 #123", "action-contexts", {"columns": 3, "actions": 4, "seed": 123}),
    ("contexts", "per action p8 A3 #124", "action-contexts", {"columns": 7, "actions": 3, "seed": 124}),
    ("contexts", "per action p12 A2 #125", "action-contexts", {"columns": 11, "actions": 2, "seed": 125}),
    (
        "contexts", "logit p6 A4 #126", "action-contexts",
        {"columns": 5, "actions": 4, "link": "logit", "seed": 126},
    ),
    ("contexts", "fixed arms d6 A12 #127", "fixed-arms", {"dimension": 6, "actions": 12, "seed": 127}),
    ("contexts", "fixed arms d12 A25 #128", "fixed-arms", {"dimension": 12, "actions": 25, "seed": 128}),
)  # fmt: skip
