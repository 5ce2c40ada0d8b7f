"""Luyo et al. 2021: private exploration with linear representations, measured."""

from papers.luyo_2021 import pages, runs
from papers.study import Study

STUDY = Study(
    "luyo-2021", runs.run, pages.claims, pages.summary, {"luyo-2021": pages.figure}, pages.page,
)  # fmt: skip
