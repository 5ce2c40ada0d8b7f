"""Rows made up from a schema pass every check of that schema."""

from pathlib import Path

import numpy as np
import pytest
from counted import count

from discreet.core.layout import Layout
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema
from discreet.pipeline.synthetic_data import made_up_world, write_made_up

MASK = np.ones((6, 3), bool)
MASK[2, 1] = MASK[5, 0] = False

SCHEMAS = {
    "plain": Schema("x", "person", Layout(6, 3, 4)),
    "one state": Schema("x", "person", Layout(1, 2, 3)),
    "masked, ending": Schema(
        "x", "person", Layout(6, 3, 4, MASK), terminal=(5, 2), low=-2.0, high=3.0, episodes_per_user=2
    ),
    "labels": Schema(
        "x",
        "person",
        Layout(3, 2, 4),
        state_labels=("a", "b,", 'c"'),
        action_labels=("no", "yes"),
        first_step=1,
    ),
    "known rewards": Schema("x", "person", Layout(6, 3, 4), known=np.full((1, 6, 3), 0.25)),
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_made_up_rows_fit_their_schema(name: str, suffix: str, tmp_path: Path) -> None:
    schema, path = SCHEMAS[name], tmp_path / f"rows{suffix}"
    write_made_up(schema, 40, path, seed=3)
    found = count(open_source(path, schema))
    assert (found.users, found.episodes) == (40, 40 * schema.episodes_per_user)
    again = tmp_path / f"again{suffix}"
    write_made_up(schema, 40, again, seed=3)
    assert again.read_bytes() == path.read_bytes()
    write_made_up(schema, 40, again, seed=4)
    assert len(schema.layout.row_index) == 1 or again.read_bytes() != path.read_bytes()


def test_a_made_up_world_has_few_successors_and_keeps_the_dead() -> None:
    schema = SCHEMAS["masked, ending"]
    mdp, behaviour = made_up_world(schema)
    assert mdp.layout == schema.layout
    assert set(mdp.terminal) >= {2, 5}
    assert (behaviour[:, ~MASK] == 0).all()
    np.testing.assert_allclose(behaviour.sum(axis=-1), 1.0)
