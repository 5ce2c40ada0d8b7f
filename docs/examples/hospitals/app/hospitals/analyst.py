"""Server part: decrypt the sum of all hospitals, learn a policy from it, and write the folder ``policy``."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import discreet as dr

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the server part once."""
    home = Path(str(context.run_config["analyst"]))
    dr.pipeline.flower_server(dr.pipeline.read_site_plan(home / "plan.toml"), home / "policy")(grid, context)
