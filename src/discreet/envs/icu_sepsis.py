"""ICU-Sepsis (Choudhary et al. 2024): treatment of sepsis, a tabular MDP from intensive-care records.

716 states (713 clusters of patients, then death, survival and the end), 25 actions (5 levels of
fluids times 5 of vasopressors), of which a state admits those that clinicians took often enough:
2 313 admissible pairs. Reward 1 on reaching survival, so a value is a probability of survival
within H steps. Trajectories come from the fitted model, not from patients.

The data ship in the ``icu-sepsis`` wheel; only its data file is read, since importing the package
prints and pulls in legacy ``gym``.

Values at H = 20 (and 500): uniform .685 (.780), expert as shipped .692 (.782), optimal .792 (.875);
the expert renormalised on the admissible actions has another value, .69247 against .69198 at H = 20.
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
    """The ICU-Sepsis MDP over ``horizon`` steps: S = 716, A = 25, masked, stationary.

    Terminal states 713 (death), 714 (survival), 715 (end) are absorbing with reward 0 and admit
    every action. Reward 1, deterministic given the successor, on the step into survival.

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
    transitions[terminal] = 0.0  # the file sends death and survival on to the end
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
    """The clinicians' estimated policy of ICU-Sepsis, (horizon, 716, 25), zero on inadmissible pairs.

    The shipped table puts 15.6 % of its mass (mean over the 713 states) on inadmissible actions, whose
    effect in the ICU-Sepsis environment is that of a uniform admissible action. ``"environment"``
    moves that mass accordingly, which keeps the shipped policy's value exactly; ``"renormalised"``
    drops it and rescales the rest, which is another policy with another value. In terminal states,
    where the table is zero, the policy is uniform. horizon : H >= 1; ``ValueError`` for less.
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
    """The folder of the wheel's data files, without importing the wheel."""
    found = find_spec("icu_sepsis")
    for place in (found.submodule_search_locations or []) if found is not None else []:
        folder = Path(place) / "envs" / "assets"
        if (folder / "dynamics.npz").is_file():
            return folder
    raise ImportError("ICU-Sepsis needs the data of icu-sepsis: pip install 'discreet[icu]'")


def _admissible(assets: Path) -> NDArray[np.bool_]:
    """(716, 25) from the text file: a line of counts, then the admissible actions of each state."""
    counts, *lines = (assets / "admissible_actions.txt").read_text().splitlines()
    mask = np.zeros((len(counts.split()), 25), dtype=bool)
    for state, line in enumerate(lines[: len(mask)]):
        mask[state, [int(action) for action in line.split()]] = True
    if (mask.sum(axis=1) != [int(n) for n in counts.split()]).any():
        raise ValueError(f"{assets / 'admissible_actions.txt'}: counts do not match the actions listed")
    return mask
