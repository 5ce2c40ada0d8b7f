"""The projection of estimation's kernels, called with plain lists."""

import numpy as np

from discreet.learners.estimation import model_kernels as kernels


def project_rows(v, w, c):
    """x (n, S) and t (n,) of rows v (n, S) with sums w (n,) and a tolerance c, one or (n,)."""
    table = np.asarray(v, dtype=np.float64)
    n = len(table)
    x, t = np.empty_like(table), np.empty(n)
    sums = np.asarray(w, dtype=np.float64)
    width = np.full(n, c, dtype=np.float64)
    kernels.project_table(table, sums, width, x, t)
    return x, t
