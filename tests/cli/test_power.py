"""Simulated probabilities that a gain is shown, on the command line."""

from pathlib import Path

from commands import RUNNER

from discreet import cli
from discreet.core.layout import Layout
from discreet.data.schema import Schema, write_schema


def test_gains_are_forecast_of_the_learner_that_runs(tmp_path: Path) -> None:
    write_schema(Schema("ward", "patient", Layout(3, 2, 3), stationary=False), tmp_path / "H.toml")
    gain = ["--users", "60", "--epsilon", "1", "--delta", "1e-6", "--target-gain", "0.5", "--draws", "2"]
    for more, message in (
        ([], "learner = 'dp-apvi': must be decision-points"),
        (["--learner", "decision-points"], "must be of a schema with stationary = true"),
        (["--learner", "apvi"], "learner = 'apvi': must be decision-points"),
    ):
        done = RUNNER.invoke(cli.app, ["power", "--schema", str(tmp_path / "H.toml"), *gain, *more])
        assert done.exit_code == 2
        assert message in " ".join(done.stderr.split())
