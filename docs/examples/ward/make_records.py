"""Write synthetic records of a hospital ward, in the form in which hospitals store them.

    python make_records.py --patients 20000 --out records

writes three files, in the formats of three different hospital systems:

- ``charts.csv``: one line for each measurement, with the name of the measured item. It uses semicolons,
  decimal commas and local time, and its rows are in random order. Some lines occur twice, some values are
  impossible, and some are not numbers;
- ``drugs.csv.gz``: one line for each dose;
- ``stays.csv``: one line for each stay, with its start and its outcome.

Each file writes patient IDs in a different form. The simulated ward has four severities and three treatments.
At each severity one treatment is best; clinicians choose it half of the time. Pressure and lactate together
determine the severity. Pressure alone does not: the two middle severities have the same pressure, and the
more severe one has more lactate. A drug raises the pressure that is measured after it.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import pandas as pd

STEPS = 30  # number of steps; each step lasts four hours
BEST = np.array([0, 1, 2, 2])  # best treatment at each severity; 0: none, 1: fluids, 2: noradrenaline
PRESSURE = np.array([88.0, 72.0, 72.0, 57.0])
LACTATE = np.array([1.1, 1.1, 4.0, 5.5])
RAISES = np.array([0.0, 8.0, 16.0])  # amount by which each treatment raises the pressure measured after it


def main() -> None:
    """Parse the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("records"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True)
    write(asked.out, asked.patients, np.random.default_rng(asked.seed))


def write(out: Path, patients: int, draw: np.random.Generator) -> None:
    """Simulate the ward and write its three files to the folder ``out``."""
    begin = pd.Timestamp("2023-01-01").value // 10**9 + draw.integers(0, 2 * 365 * 24 * 60, patients) * 60
    severity = draw.integers(0, 4, patients)
    ended = np.full(patients, "", object)
    charts, drugs = [], []
    for step in range(STEPS):
        here = np.flatnonzero(ended == "")
        s = severity[here]
        at = begin[here] + step * 4 * 3600
        follow = draw.random(len(here)) < 0.25
        treatment = np.where(follow, BEST[s], draw.integers(0, 3, len(here)))
        charts += measured(draw, here, at, s, treatment)
        drugs.append(given(draw, here, at, treatment))
        right = treatment == BEST[s]
        luck = draw.random(len(here))
        better, worse = luck < np.where(right, 0.6, 0.3), luck > np.where(right, 0.9, 0.6)
        s = s - better + worse
        ended[here[s < 0]], ended[here[s > 3]] = "home", "died"
        severity[here] = np.clip(s, 0, 3)
    ended[ended == ""] = draw.choice(["home", "ward"], int((ended == "").sum()))

    chart = pd.concat(charts)
    chart = pd.concat([chart, chart.sample(frac=0.02, random_state=1)])  # 2 % of the lines occur twice
    chart = chart.sample(frac=1.0, random_state=2)
    chart["value"] = messy(draw, chart["value"].to_numpy())
    chart["patient"] = [f"P{one:06d}" for one in chart["patient"]]
    chart["time"] = local(chart["time"]).dt.strftime("%d.%m.%Y %H:%M")
    chart.to_csv(out / "charts.csv", sep=";", index=False)

    drug = pd.concat(drugs)
    drug["patient"] = [f"p{one}" for one in drug["patient"]]
    drug["time"] = local(drug["time"]).dt.strftime("%d.%m.%Y %H:%M")
    with gzip.open(out / "drugs.csv.gz", "wt", encoding="utf-8") as file:
        drug.to_csv(file, sep=";", index=False, decimal=",")

    stays = pd.DataFrame({"patient": [f"P{one:06d} " for one in range(patients)], "outcome": ended})
    stays["admitted"] = local(pd.Series(begin)).dt.strftime("%d.%m.%Y %H:%M")
    stays.to_csv(out / "stays.csv", sep=";", index=False)


def measured(
    draw: np.random.Generator, who: np.ndarray, at: np.ndarray, s: np.ndarray, treatment: np.ndarray
) -> list[pd.DataFrame]:
    """Return pressure and lactate measurements in the first hour of a step.

    In 40 % of the cases the pressure is measured again after the treatment.
    """
    again = draw.random(len(who)) < 0.4
    raised = PRESSURE[s[again]] + RAISES[treatment[again]]
    return [
        table(draw, who, at, "MAP", draw.normal(PRESSURE[s], 2.0).round(1)),
        table(draw, who, at, "Lactate", draw.gamma(64.0, LACTATE[s] / 64.0).round(2)),
        table(draw, who[again], at[again], "MAP", draw.normal(raised, 2.0).round(1), 180),
    ]


def given(draw: np.random.Generator, who: np.ndarray, at: np.ndarray, treatment: np.ndarray) -> pd.DataFrame:
    """Return one row for each dose. Patients without a treatment at this step have no row."""
    some = treatment > 0
    drug = np.array(["", "Ringer", "Noradrenaline"])[treatment[some]]
    amount = np.where(treatment[some] == 1, 500.0, draw.uniform(0.1, 2.0, int(some.sum())).round(2))
    later = table(draw, who[some], at[some], drug, amount, 60, 120)
    return later.rename(columns={"item": "drug", "value": "amount"})


def table(
    draw: np.random.Generator, who: np.ndarray, at: np.ndarray, item: object, value: np.ndarray,
    first: int = 0, minutes: int = 60,
) -> pd.DataFrame:  # fmt: skip
    """Return rows at random minutes of a step, from minute ``first`` to minute ``first + minutes``."""
    minute = first + draw.integers(0, 240, len(who)) * minutes // 240
    return pd.DataFrame({"patient": who, "time": at + 60 * minute, "item": item, "value": value})


def local(seconds: pd.Series) -> pd.Series:
    """Convert Unix seconds to the local time of the ward's clock (Europe/Berlin).

    Local times in the hour that occurs twice, when daylight saving time ends, are set back by one hour.
    """
    clock = pd.to_datetime(seconds, unit="s", utc=True).dt.tz_convert("Europe/Berlin").dt.tz_localize(None)
    twice = clock.dt.tz_localize("Europe/Berlin", ambiguous="NaT").isna()
    return clock.mask(twice, clock - pd.Timedelta(hours=1))


def messy(draw: np.random.Generator, values: np.ndarray) -> list[str]:
    """Return numbers as text with decimal commas; replace 1 % of them by invalid entries."""
    text = [str(value).replace(".", ",") for value in values]
    for place in np.flatnonzero(draw.random(len(text)) < 0.01):
        text[place] = str(draw.choice(["999", "k.A.", "", "-1", ">300"]))
    return text


if __name__ == "__main__":
    main()
