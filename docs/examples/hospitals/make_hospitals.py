"""Write the files of four simulated hospitals, each in its own folder.

A folder contains the hospital's rows, the partial aggregate of these rows, the plan, and the key that the
hospitals share.

python docs/examples/hospitals/make_hospitals.py FOLDER
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import discreet as dr
from discreet.pipeline.synthetic_data import write_made_up

HOSPITALS, PATIENTS = 4, 3000
SCHEMA = dr.Schema(
    "sepsis of four hospitals", "patient", dr.Layout(8, 3, 6), stationary=True, terminal=(6, 7),
    outcomes={7: 1.0},
)  # fmt: skip
PLAN = """\
schema = "schema.toml"
algorithm = "decision-points"
sites = 4
needed = 3          # one hospital may drop out
colluding = 1       # and one may pass on what it knows
noise = "sites"
name = "spring"

[privatizer]
epsilon = 1.0
delta = 1e-6
"""


def main(folder: Path) -> None:
    """Write the files that the hospitals and the analyst agree on, then the files of each hospital."""
    folder.mkdir()
    analyst = folder / "analyst"
    analyst.mkdir()
    dr.data.write_schema(SCHEMA, analyst / "schema.toml")
    (analyst / "plan.toml").write_text(PLAN)
    secret = dr.pipeline.new_aggregate_key(
        folder / "run.key"
    )  # shared among the hospitals over a separate channel; the analyst must not have it
    for number in range(HOSPITALS):
        home = folder / f"hospital-{number}"
        home.mkdir()
        for name in ("schema.toml", "plan.toml"):
            shutil.copy(analyst / name, home)
        shutil.copy(secret, home)
        write_made_up(SCHEMA, PATIENTS, home / "patients.parquet", seed=number)
        source = dr.data.open_source(home / "patients.parquet", dr.read_schema(home / "schema.toml"))
        plan, key = (
            dr.pipeline.read_site_plan(home / "plan.toml"),
            dr.pipeline.read_aggregate_key(home / "run.key"),
        )
        dr.pipeline.aggregate_part(source, plan.learner, key).save(home / "patients.tally")
    print(plan.guarantee)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
