"""Luyo et al. 2021: private exploration with linear representations, measured."""

from discreet.reproductions.luyo_2021 import pages, runs
from discreet.reproductions.study import Study

STUDY = Study(
    "luyo-2021", runs.run, pages.claims, pages.summary, {"luyo-2021": pages.figure}, pages.page,
)  # fmt: skip
