"""ICU-Sepsis (Choudhary et al. 2024): a tabular MDP of sepsis treatment from intensive-care records.

The MDP has 716 states (713 clusters of patients, then death, survival and the end) and 25 actions (5 levels
of fluids times 5 levels of vasopressors). In a state, those actions are admissible that clinicians took often
enough; there are 2 313 admissible pairs. The reward is 1 on reaching survival, so a value is a probability of
survival within H steps. Trajectories come from the fitted model, not from patients.

The data are in the ``icu-sepsis`` wheel. Only its data file is read, because importing the package
prints messages and imports legacy ``gym``.

Values at H = 20 (and 500): uniform 0.685 (0.780), expert as shipped 0.692 (0.782), optimal 0.792 (0.875).
The expert renormalised on the admissible actions has a different value at H = 20: 0.69247 instead of 0.69198.
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
    """Return the ICU-Sepsis MDP over ``horizon`` steps: S = 716, A = 25, masked, stationary.

    Terminal states 713 (death), 714 (survival), 715 (end) are absorbing with reward 0 and admit
    every action. The reward is 1 on the step into survival, and deterministic given the successor.

    Raises
    ------
    ImportError
        If the data are not installed; the message names the extra.
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
        transitions,
        rewards,
        initial,
        horizon=horizon,
        mask=mask,
        terminal=terminal,
        name="icu-sepsis",
    )


def expert_policy(
    *, horizon: int = 20, inadmissible: Literal["environment", "renormalised"] = "environment"
) -> NDArray[np.float64]:
    """Return the clinicians' estimated policy of ICU-Sepsis, (horizon, 716, 25), 0 on inadmissible pairs.

    The table in the wheel has 15.6 % of its probability (mean over the 713 states) on inadmissible actions,
    whose effect in the ICU-Sepsis environment is that of a uniform admissible action. ``"environment"``
    redistributes this probability accordingly, which preserves the value of the table's policy exactly.
    ``"renormalised"`` removes this probability and rescales the remaining ones, which gives a different
    policy with a different value. In terminal states, where the table is zero, the policy is uniform. horizon
    : H >= 1; ``ValueError`` for less.
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
    """Return the folder of the wheel's data files, without importing the wheel."""
    found = find_spec("icu_sepsis")
    for place in (found.submodule_search_locations or []) if found is not None else []:
        folder = Path(place) / "envs" / "assets"
        if (folder / "dynamics.npz").is_file():
            return folder
    raise ImportError("ICU-Sepsis needs the data of icu-sepsis: pip install 'discreet[icu]'")


def _admissible(assets: Path) -> NDArray[np.bool_]:
    """Read the (716, 25) mask from the text file: a line of counts, then each state's admissible actions."""
    counts, *lines = (assets / "admissible_actions.txt").read_text().splitlines()
    mask = np.zeros((len(counts.split()), 25), dtype=bool)
    for state, line in enumerate(lines[: len(mask)]):
        mask[state, [int(action) for action in line.split()]] = True
    if (mask.sum(axis=1) != [int(n) for n in counts.split()]).any():
        raise ValueError(f"{assets / 'admissible_actions.txt'}: counts do not match the actions listed")
    return mask
