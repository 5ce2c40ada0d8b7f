r"""The projection of noisy counts onto consistent ones, in closed form.

Qiao and Wang 2023 (also Bai et al. 2024) post-process the noisy transition counts v = N3-hat(s, a, .)
and the noisy visits w = N-hat(s, a) of each pair by a linear programme,

    minimise max_s |x_s - v_s|   over x >= 0,  |sum_s x_s - w| <= c,      c = E / 4,

and then set N3~ = x + E / (2 S), N~ = sum x + E / 2. When E >= 4 max(E1, E3) bounds the noise, the
true counts are feasible, whence N <= N~ <= N + E, |N3~ - N3| <= E, N3~ > 0 and N~ = sum N3~.

**Closed form.** With B = max(0, w + c), A = max(0, w - c), u = v sorted downwards and c_j its prefix sums,

    t* = max{0, -min v, (A - sum v) / S, max_j (c_j - B) / j}

is the optimal value; with lo = sum (v_s - t*)_+, hi = sum (v_s + t*), y = clip(max(w, 0), lo, hi), the
Euclidean projection of v onto {x >= 0, sum x = y}, that is x = (v - theta)_+, attains it.

*Proof.* At level t the box [(v_s - t)_+, v_s + t] is non-empty for all s iff t >= -min v, and the sums
reachable in it form [lo(t), hi(t)]. So t is feasible iff also lo(t) <= w + c and hi(t) >= w - c; the
second is t >= (w - c - sum v) / S. For the first, sum (v_s - t)_+ is the largest of sum_J (v_s - t) over
subsets J, attained at a prefix of u, hence lo(t) <= B iff c_j - j t <= B for all j. All four are lower
bounds on t, so t* is their maximum. [lo, hi] meets [w - c, w + c], whose centre is w: the point of
[lo, hi] nearest to w is within c of w. The map mu -> sum (v_s + mu)_+ is increasing, lo at mu = -t*, hi at
mu = t*, and y lies between: |theta| <= t*, so |x_s - v_s| <= t*. QED

**Which optimum.** The programme usually has many. This one has the smallest |sum x - w|, then the
smallest Euclidean distance to v, and is unique. Where w + c < 0 nothing is feasible (possible only
outside the good event): x = 0.

**Computation.** theta is the root of sum (v_s - theta)_+ = y: for that no sort is needed, Newton's method
from below ends, exactly, after a few passes (:func:`discreet.estimation.kernels.project_row`). If the
bound lo(t) <= B is the one that binds, t* is itself such a root, with y = B, and theta = t*; so one
root is found at most.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.estimation import kernels
from discreet.numerics import checks

Floats = NDArray[np.float64]

__all__ = ["project_rows"]


def project_rows(v: ArrayLike, w: ArrayLike, c: ArrayLike) -> tuple[Floats, Floats]:
    """Minimise max|x - v| over x >= 0, |sum x - w| <= c, for each row: the canonical optimum.

    Parameters
    ----------
    v : (n, S) array
        Noisy transition counts, finite.
    w : (n,) array
        Noisy visits, finite.
    c : float or (n,) array
        Tolerance of the sum, at least 0 (E / 4 in the paper).

    Returns
    -------
    x : (n, S) array
        The canonical optimum; 0 in rows with w + c < 0, where nothing is feasible.
    t : (n,) array
        max_s |x_s - v_s|, the optimal value (of the relaxed problem in infeasible rows).

    Raises
    ------
    ValueError
        If a shape does not fit, a value is not finite, or c < 0.

    Examples
    --------
    >>> x, t = project_rows([[3.0, -2.0, 1.0]], [2.0], 0.5)
    >>> x.tolist(), t.tolist()
    ([[2.0, 0.0, 0.0]], [2.0])
    """
    table = np.asarray(v, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"v has shape {table.shape}: must be (n, S) with S at least 1")
    n = table.shape[0]
    table = checks.floats("v", table, table.shape)
    sums = checks.floats("w", w, (n,))
    width = checks.floats("c", np.broadcast_to(np.asarray(c, dtype=np.float64), (n,)), (n,))
    if (width < 0).any():
        raise ValueError(f"c holds {float(width.min())!r}: must be at least 0")
    x, t = np.empty_like(table), np.empty(n)
    kernels.project_table(table, sums, width, x, t)
    return x, t
