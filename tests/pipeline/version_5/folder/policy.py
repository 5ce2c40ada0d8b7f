"""Acts by policy.csv, which must lie beside this file. Needs nothing but Python itself.

Privacy: Differential privacy with a trusted keeper of the data: after exchanging any one user's
whole trajectory for another, the probability of anything that is released, or computed from it, is
at most e^5 = 149 times what it was before (ε = 5, δ = 0). Noise: discrete Laplace in every cell
(one noisy sum over all users). A user is one episode; a person with m episodes is protected at m
times this ε. The number of users is public. Noise drawn exactly, in integers, from the operating
system's cryptographic source.

Where there is too little data (supported = 0), the policy abstains.
"""

import csv
import pathlib

_ACTIONS = {}
_STATES = {}  # label to index
with open(pathlib.Path(__file__).with_name("policy.csv"), encoding="utf-8", newline="") as _file:
    for _row in csv.DictReader(_file):
        if "state_label" in _row:
            _STATES[_row["state_label"]] = int(_row["state"])
        if _row["action"] == "":
            _action = None
        else:
            _action = _row["action_label"] if "action_label" in _row else int(_row["action"])
        _ACTIONS[int(_row["step"]), int(_row["state"])] = _action


def act(step, state):
    """The action at a step (0 to 2) in a state, or None where the policy abstains.

    ``state`` is an index from 0, or a label where policy.csv has a column state_label; the action is
    a label where it has a column action_label, else an index. Anything else is a KeyError.
    """
    return _ACTIONS[step, _STATES[state] if isinstance(state, str) else state]
