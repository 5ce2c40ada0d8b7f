"""Published deployments of differential privacy for comparison, with the numbers that their developers state.

An epsilon is meaningful only together with its unit and its trust assumptions. The unit states which data,
over which period, are exchanged or removed. If a source states no delta, the field ``delta`` states this.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deployment:
    """Published system that uses differential privacy.

    - epsilon, delta : values that the source states.
    - unit : the data that are protected as a whole.
    """

    name: str
    epsilon: str
    delta: str
    unit: str
    trust: str
    source: str
    address: str


PUBLISHED = (
    Deployment(
        "US Census 2020, redistricting data",
        "19.61 (17.14 for persons, 2.47 for housing units)",
        "not in this source",
        "one person's (one housing unit's) answers, in the whole product",
        "central",
        "U.S. Census Bureau, Census Bureau Sets Key Parameters to Protect Privacy in 2020 Census Results, 9 "
        "June 2021",
        "https://www.census.gov/programs-surveys/decennial-census/decade/2020/planning-management/process/"
        "disclosure-avoidance/2020-das-updates/2021-06-09.html",
    ),
    Deployment(
        "Israel, National Registry of Live Births 2014",
        "9.98",
        "0",
        "one birth: mother and newborn, in the whole product",
        "central",
        "Hod and Canetti 2024",
        "https://arxiv.org/abs/2405.00267",
    ),
    Deployment(
        "Apple, popular emoji",
        "4",
        "0",
        "one donation of one device; one a day is sent",
        "local",
        "Apple, Differential Privacy Overview",
        "https://www.apple.com/privacy/docs/Differential_Privacy_Overview.pdf",
    ),
    Deployment(
        "Google, COVID-19 Search Trends symptoms",
        "1.68",
        "0",
        "one user's symptom searches of one day",
        "central",
        "Bavadekar and others 2020",
        "https://arxiv.org/abs/2009.01265",
    ),
    Deployment(
        "Google, COVID-19 Vaccination Search Insights",
        "2.19",
        "1e-05",
        "one user's related searches of one day",
        "central",
        "Bavadekar and others 2021",
        "https://arxiv.org/abs/2107.01179",
    ),
    Deployment(
        "LinkedIn, Audience Engagements API",
        "34.9",
        "7e-09",
        "one member, in the answers of one month",
        "central",
        "Rogers and others 2020",
        "https://arxiv.org/abs/2002.05839",
    ),
)
