"""Pages of a release of contexts name the columns that were read, and no states."""

from pathlib import Path

import discreet as dr
from discreet.data.row_batches import open_source
from discreet.data.schema import Contexts, Schema
from discreet.device.feature_map import FeatureMap
from discreet.pipeline.learn import learn
from discreet.pipeline.synthetic_data import write_made_up


def test_pages_name_contexts_and_no_states(tmp_path: Path) -> None:
    contexts = Contexts(FeatureMap({"age": (18.0, 90.0), "lactate": (0.0, 20.0)}, 3), "chance")
    schema = Schema(
        "icu", "patient", dr.Layout(2, 3, 4), terminal=(1,), unfinished="terminal", context=contexts
    )
    rows, out = tmp_path / "rows.parquet", tmp_path / "run"
    write_made_up(schema, 40, rows)
    learn(
        open_source(rows, schema), dr.learners.LinearAdvantage(), out,
        privatizer=dr.Central(epsilon=1.0, delta=1e-6), ledger=None, randomness=dr.Seeded(1),
    )  # fmt: skip
    officer = (out / "officer.md").read_text()
    assert "age, lactate, chance" in officer
    assert "each with real-valued readings" in officer
    assert "2 states" not in officer
    assert "next_state" not in officer
