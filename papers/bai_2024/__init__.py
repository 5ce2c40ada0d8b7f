"""Bai et al. 2024: policy elimination under shuffle privacy, measured."""

from papers.bai_2024 import pages, runs
from papers.study import Study

STUDY = Study("bai-2024", runs.run, pages.claims, pages.summary, {"bai-2024": pages.figure}, pages.page)
