"""Commands and options of earlier versions that were renamed or moved.

If the user gives an old name, the program prints one line with the new name, and ends with exit status 2. The
only old name that still works is ``--option``, an alias of ``--set``. The tables of this module will be
deleted in version 0.4.0.
"""

from __future__ import annotations

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
OPTIONS = {
    "--algorithm": "--learner",
    "--approval": "--report approval=TEXT",
    "--bins": "--set bins=N",
    "--decimal": "--source decimal=,",
    "--delimiter": "--source delimiter=TEXT",
    "--encoding": "--source encoding=NAME",
    "--first-seed": "--seeds FIRST:END",
    "--level": "--report level=NUMBER",
    "--operator": "--report operator=TEXT",
    "--preset": "--set preset=NAME",
    "--purpose": "--report purpose=TEXT",
    "--reads": "FILES --sql QUERY",
    "--rehearse": "--dry-run",
    "--return-bound": "--report return_bound=NUMBER",
    "--rounds": "--set rounds=N",
    "--scratch": "--source scratch=DIR",
    "--start": "--set start=FILE",
    "--workers": "--source workers=N",
}
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
