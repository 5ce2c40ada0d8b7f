"""Shariff and Sheffet 2018: what a reproduction's numbers say, as claims, tables and a page.

Everything here is a function of what was run; no number or verdict is typed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from discreet.utils.markdown_table import Table, markdown
from papers.page import OPEN, Claims, claims_table, filled, papers, power_of_ten, tally

Document = Mapping[str, Any]


def by_name(document: Document) -> dict[str, Document]:
    """Rows by name."""
    return {row["name"]: row for row in document["rows"]}


def claims(document: Document) -> list[dict[str, Any]]:
    """Every claim with its verdict and the numbers that decide it."""
    found, rows = Claims(), by_name(document)
    ten, one = (rows[f"ε = {e}, as printed"] for e in (10, 1))
    found.add(
        "the tree with Gaussian noise is (ε, δ)-jointly private", ten["true"] <= 10 and one["true"] <= 1,
        f"stated 10, true {ten['true']:.3g}; stated 1, true {one['true']:.3g}", "section 4",
    )  # fmt: skip
    late = max(cell["late"] for cell in ten["cells"].values())
    found.add(
        "its regret grows as T^(1/2)", OPEN,
        f"an upper bound whose constants Õ hides; late share at a stated 10 as printed up to {late:.0%}",
        "section 4",
    )  # fmt: skip
    for name in one["cells"]:

        def share(row: str, name: str = name) -> float:
            return float(rows[row]["cells"][name]["share"])

        for e in (1, 10):
            printed, exact = share(f"ε = {e}, as printed"), share(f"ε = {e}, exact noise, printed width")
            found.add(
                f"{name}, ε = {e}: noise of exactly this ε gives less regret than the printed noise",
                exact < printed, f"{exact:.1%} against {printed:.1%}",
            )  # fmt: skip
            tree, own = share(f"ε = {e}, exact noise, tuned"), share(f"ε = {e}, `linear-bandit`")
            found.add(
                f"{name}, ε = {e}: `linear-bandit` has less regret than the tuned tree", own < tree,
                f"{own:.1%} against {tree:.1%}",
            )  # fmt: skip
    return found.found


def table(document: Document) -> Table:
    """A line a row: the true ε and the share of the uniform policy's regret in each environment."""
    names = [*document["rows"][0]["cells"]]
    lines: list[tuple[str, ...]] = [("", "true ε", *names)]
    for row in document["rows"]:
        true = "—" if row["true"] is None else f"{row['true']:.3g}"
        cells = [
            f"{100 * cell['share']:.1f} ± {100 * cell['error']:.1f} % (late {100 * cell['late']:.1f})"
            for cell in row["cells"].values()
        ]
        lines.append((row["name"], true, *cells))
    return lines


def summary(document: Document) -> list[tuple[str, Table]]:
    """What a terminal shows."""
    return [
        ("Share of the uniform policy's regret", table(document)),
        ("The paper's claims", claims_table(papers(document["claims"]))),
        ("Claims about what was measured", claims_table(papers(document["claims"], ours=True))),
    ]


def page(document: Document) -> str:
    """The page of the documentation."""
    found, rows = document["claims"], by_name(document)
    return filled(
        Path(__file__).with_name("page.md"),
        users=document["users"], delta=power_of_ten(document["delta"]), instances=document["instances"],
        nodes=document["nodes"], scale=document["scale"], growth=document["growth"],
        true_one=rows["ε = 1, as printed"]["true"], true_ten=rows["ε = 10, as printed"]["true"],
        paper_tally=tally(papers(found)), paper_claims=markdown(claims_table(papers(found))),
        our_tally=tally(papers(found, ours=True)),
        our_claims=markdown(claims_table(papers(found, ours=True))), table=markdown(table(document)),
    )  # fmt: skip
