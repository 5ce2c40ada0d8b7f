"""Client part of a hospital.

It reads all files from the hospital's own folder. The operator who starts the hospital's SuperNode sets the
path of this folder.
"""

from pathlib import Path

from flwr.app import Context

import discreet as dr


def site(context: Context) -> dr.pipeline.FederatedSite:
    """Return the site of this hospital. In Flower's simulation, ``partition-id`` selects the hospital."""
    home = Path(str(context.node_config.get("folder", "")))
    if not home.parts:
        home = Path(str(context.run_config["folder"])) / f"hospital-{context.node_config['partition-id']}"
    return dr.pipeline.FederatedSite(
        plan=dr.pipeline.read_site_plan(home / "plan.toml"),
        part=dr.pipeline.PartialAggregateFile.load(home / "patients.tally"),
        key=dr.pipeline.read_aggregate_key(home / "run.key"),
        ledger=home / "ledger",
    )


app = dr.pipeline.flower_client(site)
