"""DP-VAPVI as printed by Qiao and Wang (2023), with the settings of Figure 1 and of algorithm 2.

    python -m benchmarks.studies.printed_offline [--instances 10] [--runs 2] [--users 1000]

Prints mean suboptimality on the synthetic linear MDP, with standard errors over instances. The last column
is the number of users from which D / K is below H, so that the penalty of algorithm 2 leaves any Q above 0.
"""

from __future__ import annotations

import argparse

from discreet.learners.offline.linear_pevi import DPPEVI, DPVAPVI, Linear
from discreet.utils.markdown_table import markdown
from papers.qiao_wang_2023_offline.linear import Curve, Worlds, error, gaps

RHOS = (1.0, 5.0, 25.0)


def _least_users(learner: Linear, worlds: Worlds) -> str:
    if not isinstance(learner, DPVAPVI) or learner.D != "printed":
        return "-"
    table, _, _, features = worlds[0]
    _, lower_order = learner._constants(table.layout, features[False])
    return f"{lower_order / table.horizon:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--instances", type=int, default=10)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--users", type=int, default=1000)
    options = parser.parse_args()
    worlds, lines = Worlds(0, options.instances), []
    for name, make in (
        ("DP-VAPVI, `figure-1`", lambda rho: DPVAPVI(rho=rho, preset="figure-1")),
        ("DP-VAPVI, `paper`", lambda rho: DPVAPVI(rho=rho, preset="paper")),
        ("DP-VAPVI, `paper`, D = 0, C = .1", lambda rho: DPVAPVI(rho=rho, preset="paper", D=0.0, C=0.1)),
        ("DP-PEVI", lambda rho: DPPEVI(rho=rho)),
    ):
        cells, stated = [], ""
        for rho in RHOS:
            found, true, _ = gaps(Curve(name, make(rho)), options.users, worlds, options.runs)
            cells.append(f"{found.mean():.2f} ± {error(found):.2f}")
            stated = stated or f"{true:.3f}"
        lines.append([name, *cells, stated, _least_users(make(1.0), worlds)])
    head = ["", *(f"ρ = {rho:g}" for rho in RHOS), "true ρ at ρ = 1", "K with D / K < H, ρ = 1"]
    print(markdown([head, *lines]))


if __name__ == "__main__":
    main()
