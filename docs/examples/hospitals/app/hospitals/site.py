"""At a hospital: everything is read from its own folder, named by whoever starts its SuperNode."""

from pathlib import Path

from flwr.app import Context

import discreet as dr


def site(context: Context) -> dr.pipeline.FederatedSite:
    """This hospital; in Flower's simulation the one of the node's number."""
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
