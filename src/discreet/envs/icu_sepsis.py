"""ICU-Sepsis (Choudhary et al. 2024): a tabular MDP of sepsis treatment from intensive-care records.

The MDP has 716 states (713 clusters of patients, then death, survival and the end) and 25 actions (5 levels
of fluids times 5 levels of vasopressors). An action is admissible in a state if clinicians took it there
often enough. There are 2 313 admissible pairs. The value of a policy is the probability of survival within H
steps.

Values at H = 20 (in brackets at H = 500) are 0.685 (0.780) for the uniform policy, 0.692 (0.782) for the
expert policy in the wheel, and 0.792 (0.875) for the optimal policy.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.envs.mdp.tabular import TabularMDP

DEATH, SURVIVAL, END = 713, 714, 715


def icu_sepsis(*, horizon: int = 20) -> TabularMDP:
    """Return the ICU-Sepsis MDP over ``horizon`` steps: S = 716, A = 25, with a mask, stationary.

    Terminal states 713 (death), 714 (survival) and 715 (end) are absorbing with reward 0 and admit every
    action. The reward is 1 at the step that reaches survival.

    Raises
    ------
    ImportError
        If the data are not installed.
    """
    assets = _assets()
    mask = _admissible(assets)
    with np.load(assets / "dynamics.npz") as data:
        transitions, rewards, initial = data["tx_mat"], data["r_mat"], data["d_0"]
    terminal = [DEATH, SURVIVAL, END]
    transitions[terminal] = 0.0  # in the file, death and survival lead to the end state
    transitions[terminal, :, terminal] = 1.0
    rewards[terminal] = 0.0
    return TabularMDP(
        transitions, rewards, initial, horizon=horizon, mask=mask, terminal=terminal, name="icu-sepsis"
    )


def expert_policy(
    *, horizon: int = 20, inadmissible: Literal["environment", "renormalised"] = "environment"
) -> NDArray[np.float64]:
    """Return the estimated policy of the clinicians in ICU-Sepsis: (horizon, 716, 25) action probabilities.

    In the table of the wheel, inadmissible actions have 15.6 % of the probability (mean over the 713 states).
    ``"environment"`` distributes the probability of inadmissible actions equally over the admissible actions,
    as the original environment does. ``"renormalised"`` removes the probability of inadmissible actions and
    rescales those of admissible actions; the value of the policy changes. In terminal states, the policy is
    uniform.

    horizon : H, at least 1. Raises ``ValueError`` if it is smaller.
    """
    horizon = checks.integer("horizon", horizon, 1)
    checks.choice("inadmissible", inadmissible, ("environment", "renormalised"))
    assets = _assets()
    mask = _admissible(assets)
    with np.load(assets / "dynamics.npz") as data:
        shipped = data["expert_policy"]
    uniform = mask / mask.sum(axis=1, keepdims=True)
    policy = np.where(mask, shipped, 0.0)
    if inadmissible == "environment":
        policy += uniform * np.where(mask, 0.0, shipped).sum(axis=1, keepdims=True)
    policy[[DEATH, SURVIVAL, END]] = uniform[[DEATH, SURVIVAL, END]]
    policy /= policy.sum(axis=1, keepdims=True)
    return np.repeat(policy[None], horizon, axis=0)


def _assets() -> Path:
    """Return the folder that contains the data files of the installed ``icu-sepsis`` package.

    Raises ``ImportError`` if the files are not found.
    """
    found = find_spec("icu_sepsis")
    for place in (found.submodule_search_locations or []) if found is not None else []:
        folder = Path(place) / "envs" / "assets"
        if (folder / "dynamics.npz").is_file():
            return folder
    raise ImportError("ICU-Sepsis needs the data of icu-sepsis: pip install 'discreet[icu]'")


def _admissible(assets: Path) -> NDArray[np.bool_]:
    """Return the (716, 25) mask of admissible pairs.

    assets : folder with the file ``admissible_actions.txt``.
    """
    counts, *lines = (assets / "admissible_actions.txt").read_text().splitlines()
    mask = np.zeros((len(counts.split()), 25), dtype=bool)
    for state, line in enumerate(lines[: len(mask)]):
        mask[state, [int(action) for action in line.split()]] = True
    if (mask.sum(axis=1) != [int(n) for n in counts.split()]).any():
        raise ValueError(f"{assets / 'admissible_actions.txt'}: counts do not match the actions listed")
    return mask
