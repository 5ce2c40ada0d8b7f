"""The price of privacy: what privacy costs, at a true epsilon, over the declared suite."""

from papers.price_of_privacy import pages, runs
from papers.study import Study

STUDY = Study(
    "price-of-privacy", runs.run, lambda _: [], lambda given: pages.summary(given["found"]),
    {
        "price-of-privacy-riverswim": lambda given: pages.users_figure(given["found"]),
        "price-of-privacy-suite": lambda given: pages.suite_figure(given["found"]),
    },
    lambda given: pages.page(given["found"]), runs.runs_planned,
)  # fmt: skip
