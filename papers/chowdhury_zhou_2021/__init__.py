"""Chowdhury and Zhou 2021: Figure 2, three ways. The page of the documentation is written by hand."""

from papers.chowdhury_zhou_2021 import figure
from papers.study import Study

STUDY = Study(
    "chowdhury-zhou-2021", figure.run, figure.claims, figure.summary,
    {"chowdhury-zhou-2021": figure.figure},
)  # fmt: skip
