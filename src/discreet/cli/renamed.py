"""Commands and options of version 0.2.0 that have another name or place since 0.3.0.

An old name ends with exit status 2 and one line with the new one. The only alias is ``--option``, for
``--set``. The tables are deleted in version 0.4.0.
"""

from __future__ import annotations

__all__ = ["COMMANDS", "MOVED", "OPTIONS", "SAME_MEANING"]

COMMANDS = {
    "check": "discreet check-plugin",
    "codebook": "discreet discretize",
    "cohort": "discreet simulate-data",
    "count": "discreet aggregate",
    "forecast": "discreet estimate, or discreet power",
    "options": "discreet describe",
    "records": "python -m benchmarks.leaderboard",
    "recover": "discreet ledger recover",
    "reproduce": "python -m papers reproduce NAME",
}
OPTIONS = {"--algorithm": "--learner", "--rehearse": "--dry-run"}
MOVED = {
    "--from-release": "discreet replan",
    "--rewards": "discreet replan",
    "--synthetic": "discreet dry-run",
    "--target-gain": "discreet power",
    "--world": "discreet power",
}
SAME_MEANING = {
    "--users": "--episodes",
    "--episodes": "--users",
    "--output": "--out",
    "--output-dir": "--out",
}
