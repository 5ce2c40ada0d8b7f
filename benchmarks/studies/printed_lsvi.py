"""Constants of DP-LSVI-UCB++ (Sahu 2025) and of Ngo et al. (2022): can a bonus ever be below H?

    python -m benchmarks.studies.printed_lsvi [--horizon 4] [--dimension 4] [--rho 1]

For a feature of norm 1 that all K users met, ||phi||_{Lambda^-1} is at least 1 / sqrt(L + W K), where L is
the largest eigenvalue of ridge and noise and W the largest weight. The table has beta / (H sqrt(L + W K)):
above 1, every Q stays at its upper bound, and the policy does not depend on the data.

DP-LSVI-UCB++, from the public code of its author: rho0 = rho / (4 H K), Gram noise GOE(1 / (2 sqrt(rho0))),
noise of variance 2 H^2 / rho0 and 2 H^4 / rho0 in the responses of V and of V^2, drawn for every user;
lambda = sqrt(8 d H K / rho) (2 + (log(5 H / p) / d)^{2/3}), L = 4 H sqrt(d H K log(10 d K H / p) / rho),
beta = H L sqrt(d lambda) + sqrt(d) log(1 + H K^4 L^2 d / (p lambda)), weights 1 / sigma^2 of at most 1 / H.
The other column is the width (2) of :mod:`discreet.learners.online.private_lsvi_ucb`, with the noise of a
tree at the same rho.
"""

from __future__ import annotations

import argparse
import math

from discreet.utils.markdown_table import markdown

FAILURE = 0.05


def sahu(horizon: int, d: int, users: float, rho: float) -> float:
    """beta / (H sqrt(3 lambda + K / H)) of DP-LSVI-UCB++."""
    lam = math.sqrt(8 * d * horizon * users / rho)
    lam *= 2 + (math.log(5 * horizon / FAILURE) / d) ** (2 / 3)
    vector = 4 * horizon * math.sqrt(d * horizon * users / rho * math.log(10 * d * users * horizon / FAILURE))
    last = math.log(horizon * vector**2 * d / (FAILURE * lam)) + 4 * math.log(users)
    beta = horizon * vector * math.sqrt(d * lam) + math.sqrt(d) * last
    return beta / (horizon * math.sqrt(3 * lam + users / horizon))


def true_rho(horizon: int) -> float:
    """True rho over the stated rho: (4 + 3 * 2) rho0 / H^2 is mu^2 of a user and step, of H K such pairs.

    Weights of at most 1 / H: the Gram matrix has mu^2 = 4 rho0 / H^2 for a replaced user, each response
    2 rho0 / H^2.
    """
    return 10 / (2 * horizon**2) / 4


def ngo(horizon: int, d: int, users: float, rho: float) -> float:
    """beta / (H sqrt(3 lambda + K)) of Ngo et al. with the noise of a tree that is exact at rho."""
    levels = math.floor(math.log2(users)) + 1
    scale = math.sqrt(2 * horizon * levels / (2 * rho))  # half of mu^2 = 2 rho, H steps, b = 1
    each = FAILURE / (horizon * users)
    lam = scale * math.sqrt(levels) * (2 * math.sqrt(d) + 2 * math.sqrt(math.log(2 / each)))
    chi = math.log(254 * 162 * d * horizon / FAILURE) + 4 * math.log(users)
    chi += math.log(1 + 2 * horizon * math.sqrt(d * users) / lam)
    beta = 5 * horizon**2 * math.sqrt(d * lam) * chi + 6 * d * horizon * math.sqrt(chi)
    return beta / (horizon * math.sqrt(3 * lam + users))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--horizon", type=int, default=4)
    parser.add_argument("--dimension", type=int, default=4)
    parser.add_argument("--rho", type=float, default=1.0)
    options = parser.parse_args()
    size = options.horizon, options.dimension
    head = ["K", "DP-LSVI-UCB++", "Ngo et al."]
    lines = [
        [
            f"1e{power}",
            f"{sahu(*size, 10.0**power, options.rho):.3g}",
            f"{ngo(*size, 10.0**power, options.rho):.3g}",
        ]
        for power in (3, 4, 6, 8, 10, 12)
    ]
    print(markdown([head, *lines]))
    print(f"true rho of the noise of DP-LSVI-UCB++ over the stated rho: {true_rho(options.horizon):.3f}")


if __name__ == "__main__":
    main()
