"""Qiao and Wang 2023, "Offline RL with Differential Privacy": three studies.

The paper's Figure 1 (:mod:`.linear`), a tabular panel, which the paper does not have (:mod:`.tabular`), and
cohorts of patients (:mod:`.icu`).
"""

from __future__ import annotations

from typing import Any

from papers.qiao_wang_2023_offline import icu, linear, pages, tabular
from papers.study import Job, Study

NAME = "qiao-wang-2023-offline"


def run(job: Job) -> dict[str, Any]:
    """``linear``, ``tabular`` and ``icu``, as their modules say; ``icu`` if it is installed."""
    found = {"linear": linear.run(job, linear.QUICK if job.quick else linear.FULL)}
    worlds, runs, users = (3, 1, (100, 3000, 30_000)) if job.quick else (12, 3, tabular.USERS)
    found["tabular"] = tabular.tabular_panel(job, worlds, runs, users)
    try:
        found["icu"] = icu.run(job, icu.QUICK if job.quick else icu.FULL)
    except ImportError as absent:
        job.say(f"reproduce: ICU-Sepsis is left out: {absent}")
    return found


STUDY = Study(
    NAME, run, pages.claims, pages.summary,
    {
        f"{NAME}-figure-1": pages.linear_figure, f"{NAME}-tabular": pages.tabular_figure,
        f"{NAME}-icu": pages.icu_figure,
    },
    pages.page,
)  # fmt: skip
