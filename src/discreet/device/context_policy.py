"""Actions of users with real-valued contexts under a published plan, for devices and simulations.

A plan has coefficients (blocks, p) as its policy. Its context has the array "random" (1,), which is 1 if
users act at random. For explorers, it also has one of two arrays of shape (blocks, p, p). The array "root" is
the root of the covariance of each user's own coefficients. The array "bonus" adds sqrt(phi^T bonus phi) to
the score of an action.

A device computes phi from the public feature map (:mod:`discreet.device.feature_map`) and takes the action
with the highest score. The context does not leave the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ARRAYS = frozenset({"random", "root", "bonus"})
"""Names of the arrays that the context of a plan can have."""

__all__ = ["ARRAYS", "chosen_actions"]


def chosen_actions(
    policy: Any, context: Mapping[str, Any], phi: Floats, shared: bool, rng: Generator
) -> Ints:
    """Return the actions (n,) of n users with features phi under a plan.

    policy, context : coefficients (blocks, p) and arrays of the plan; see the module docstring.

    phi : (n, A, p) if the actions share coefficients (``shared``), otherwise (n, p).

    rng : random numbers of explorers and of users who act at random. These numbers are public.
    """
    n, blocks = len(phi), len(policy)
    actions = phi.shape[1] if shared else blocks
    if float(context["random"][0]) >= 1.0:
        return rng.integers(0, actions, n)
    root, bonus = context.get("root"), context.get("bonus")
    theta = np.asarray(policy, np.float64)
    if root is None:
        scores = phi @ theta[0] if shared else phi @ theta.T
        if bonus is not None:
            ends = phi @ bonus[0] if shared else np.swapaxes(phi @ bonus, 0, 1)  # (n, A, p)
            squares = (ends * (phi if shared else phi[:, None])).sum(axis=2)
            scores = scores + np.sqrt(np.maximum(squares, 0.0))
    else:
        z = rng.standard_normal((n, *theta.shape))
        own = theta + np.einsum("bij,nbj->nbi", root, z)
        scores = np.einsum("nap,np->na", phi, own[:, 0]) if shared else np.einsum("np,nap->na", phi, own)
    found: Ints = scores.argmax(axis=1)
    return found
