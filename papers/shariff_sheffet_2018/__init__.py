"""Shariff and Sheffet 2018: differentially private contextual linear bandits, measured."""

from papers.shariff_sheffet_2018 import pages, runs
from papers.study import Study

STUDY = Study("shariff-sheffet-2018", runs.run, pages.claims, pages.summary, {}, pages.page)
