"""Post-processing of noisy linear statistics: Gram matrices, tail bounds, confidence widths, predictions.

**Tail bounds.** With probability 1 - p, ||GOE(s)||_op <= s (2 sqrt(d) + 2 sqrt(log(2/p))). The proof has two
parts. First, E lambda_max <= 2 s sqrt(d) (Sudakov and Fernique). Second, lambda_max is sqrt(2) s-Lipschitz in
coordinates in which the noise is standard normal. A normal vector satisfies ||N(0, s^2 I)|| <= s
(sqrt(d) + sqrt(2 log(1/p))), also with probability 1 - p. For the sum of n independent noise terms of either
kind, the bound is multiplied by sqrt(n).

**Confidence width.** Let y_i = <X_i, w> + eta_i, where eta has range c, and let R = c/2. Let B be the sum of
ridge and noise that is added to the Gram matrix, with all eigenvalues in [low, high]. The sum of responses
sum X_i y_i has noise g with ||g|| <= C_g. Let ||w|| <= C_w. Then, with probability 1 - p,

    ||w - w_hat||_Lambda <= R sqrt(2 log(1/p) + log det(I + Gram / lam))
                            + C_w sqrt(high) + C_g / sqrt(low)                                   (1.5)

for any 0 < lam <= low, because Lambda (w - w_hat) = B w - sum X eta - g and ||B w||_{Lambda^-1} <= sqrt(w^T B
w).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from discreet.core import checks
from discreet.core.releases import Floats

Ridge = float | Literal["bound"]
Project = Literal["simplex", "range", "none"]


def goe_tail(scale: float, dimension: int, failure: float) -> float:
    """Return a bound on the operator norm of a (d, d) GOE matrix with scale ``scale``.

    The bound holds with probability 1 - ``failure``.
    """
    p = checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
    return scale * (2 * math.sqrt(dimension) + 2 * math.sqrt(math.log(2 / p)))


def check_ridge(ridge: Ridge) -> Ridge:
    """Return ``ridge`` if it is "bound" or a number that is at least 0; raise ``ValueError`` otherwise."""
    return ridge if isinstance(ridge, str) and ridge == "bound" else checks.real("ridge", ridge, 0.0)


def ridge_level(scale: float, dimension: int, ridge: Ridge, lam: float) -> float:
    """Return the ridge level lam + ridge * 2 s sqrt(d), where 2 s sqrt(d) is the spectral edge of the noise.

    Here s = ``scale`` and d = ``dimension``. If ``ridge`` is "bound", return lam + 2 tail, where tail is the
    bound of :func:`goe_tail` with failure probability 0.01.
    """
    lam = checks.positive("lam", lam)
    if check_ridge(ridge) == "bound":
        return lam + 2 * goe_tail(scale, dimension, 0.01)
    return lam + float(ridge) * 2 * scale * math.sqrt(dimension)


class Repaired(NamedTuple):
    """Positive definite matrix, its inverse, and the number of eigenvalues raised to the minimum."""

    matrix: Floats
    inverse: Floats
    floored: int


def repaired(gram: Floats, ridge: float, floor: float) -> Repaired:
    """Symmetrise a (d, d) matrix, add ``ridge`` I, and raise eigenvalues to at least ``floor`` > 0."""
    floor = checks.positive("floor", floor)
    symmetric = 0.5 * (gram + gram.T) + ridge * np.eye(len(gram))
    values, vectors = np.linalg.eigh(symmetric)
    raised = np.maximum(values, floor)
    low = int((values < floor).sum())
    matrix = (vectors * raised) @ vectors.T if low else symmetric
    return Repaired(matrix, (vectors / raised) @ vectors.T, low)


class Factored(NamedTuple):
    """n positive definite matrices Lambda, each represented by a factor F of its inverse.

    Attributes
    ----------
    factor : (n, d, d)
        F with F F^T = Lambda^-1, so ||phi||_{Lambda^-1} = ||F^T phi||.
    log_det : (n,)
        Logarithm of det Lambda.
    floored : int
        Number of eigenvalues that were raised to the minimum, over all matrices.
    """

    factor: Floats
    log_det: Floats
    floored: int


_TOUCH = 1e-9  # if an eigenvalue is below the minimum by at most this share, rounding is the cause


def factored(grams: Floats, ridges: Floats, floors: Floats) -> Factored:
    """Return positive definite versions of (n, d, d) matrices, as factors of their inverses.

    Each matrix is symmetrised, and I times its entry of ``ridges`` is added. Eigenvalues below its entry of
    ``floors`` > 0 are raised to this minimum.
    """
    d = grams.shape[-1]
    symmetric = 0.5 * (grams + grams.swapaxes(-1, -2))
    diagonal = np.arange(d)
    symmetric[:, diagonal, diagonal] += ridges[:, None]
    lowered = symmetric.copy()
    lowered[:, diagonal, diagonal] -= (1 - _TOUCH) * floors[:, None]
    try:
        np.linalg.cholesky(lowered)
        lower = np.linalg.cholesky(symmetric)
    except np.linalg.LinAlgError:
        if len(grams) == 1:
            values, vectors = np.linalg.eigh(symmetric)
            raised = np.maximum(values, floors[:, None])
            low = int((values < (1 - _TOUCH) * floors[:, None]).sum())
            return Factored(vectors / np.sqrt(raised)[:, None, :], np.log(raised).sum(axis=1), low)
        each = [factored(grams[i : i + 1], ridges[i : i + 1], floors[i : i + 1]) for i in range(len(grams))]
        return Factored(
            np.concatenate([one.factor for one in each]),
            np.concatenate([one.log_det for one in each]),
            sum(one.floored for one in each),
        )
    inverse = np.linalg.inv(lower)
    log_det = 2.0 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    return Factored(inverse.swapaxes(-1, -2), log_det, 0)


def norms(rows: Floats, inverse: Floats) -> Floats:
    """Return the (n,) norms ||phi||_{Lambda^-1} of the rows phi of ``rows`` (n, d).

    inverse : (d, d) Lambda^-1.
    """
    squared = np.einsum("nd,nd->n", rows @ inverse, rows)
    return np.sqrt(np.maximum(squared, 0.0))


def simplex_rows(rows: Floats) -> Floats:
    """Return the Euclidean projection of each row of an (n, S) array onto the probability simplex."""
    descending = -np.sort(-rows, axis=1)
    excess = (np.cumsum(descending, axis=1) - 1.0) / np.arange(1, rows.shape[1] + 1)
    last = (descending > excess).sum(axis=1) - 1
    threshold = np.take_along_axis(excess, last[:, None], axis=1)
    return np.maximum(rows - threshold, 0.0)


def model_values(
    rows: Floats, inverse: Floats, successors: Floats, values: Floats, project: Project = "simplex"
) -> Floats:
    """Return the (n,) expected next values P^ V, with the estimated model P^ = 1/S + phi^T Lambda^-1 M.

    Parameters
    ----------
    rows : (n, d)
        Features phi.
    inverse : (d, d)
        Lambda^-1.
    successors : (d, S)
        M = sum phi (e_{s'} - 1/S)^T, with noise. The mean of each row of M is removed, because it is only
        noise.
    values : (S,)
        V.
    project : "simplex", "range" or "none"
        ``simplex``: project each row of P^ onto the simplex, which needs an (n, S) array. ``range``: clip P^
        V to the range of V, without computing P^. ``none``: neither.
    """
    if project == "simplex":
        moved = successors - successors.mean(axis=1, keepdims=True)
        found: Floats = simplex_rows(1.0 / len(values) + rows @ (inverse @ moved)) @ values
        return found
    middle = values.mean()
    found = middle + rows @ (inverse @ (successors @ (values - middle)))
    return np.clip(found, values.min(), values.max()) if project == "range" else found


def model_rewards(rows: Floats, inverse: Floats, sums: Floats) -> Floats:
    """Return (n,) estimated mean rewards clip(1/2 + phi^T Lambda^-1 r, 0, 1) for ``rows`` phi (n, d).

    inverse : (d, d) Lambda^-1. sums : (d,) r = sum phi (reward - 1/2), with noise.
    """
    return np.clip(0.5 + rows @ (inverse @ sums), 0.0, 1.0)
