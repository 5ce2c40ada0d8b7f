"""A public world from a table: the same world again, defaults, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import discreet as dr
from discreet.cli import app
from discreet.core.layout import Layout
from discreet.data.schema import Schema, write_schema
from discreet.envs.mdp.planning import policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.mechanisms.interfaces import ReturnBounds
from discreet.mechanisms.policy_rows import policy_rows

MASK = np.array([[1, 1], [1, 0], [1, 1], [1, 0], [1, 0]], bool)
SCHEMA = Schema(
    "clinic", "patient", Layout(5, 2, 6, MASK), stationary=True, terminal=(3, 4), low=-1.0, high=3.0,
    state_labels=("mild", "ill", "worse", "dead", "home"), action_labels=("A", "B"),
    outcomes={3: -1.0, 4: 3.0},
)  # fmt: skip


def table() -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """A table in the schema's words, and what it says: transitions, start, shares."""
    draw = np.random.default_rng(3)
    moves, start = np.zeros((5, 2, 5)), np.array([0.5, 0.3, 0.2, 0.0, 0.0])
    share, rows = np.zeros((5, 2)), []
    for s in range(3):
        share[s, MASK[s]] = draw.dirichlet(np.ones(MASK[s].sum()))
        for a in np.flatnonzero(MASK[s]):
            moves[s, a] = draw.dirichlet(np.ones(5))
            for t in range(5):
                rows.append(
                    (
                        SCHEMA.state_labels[s], SCHEMA.action_labels[a], SCHEMA.state_labels[t],
                        moves[s, a, t], start[s], share[s, a],
                    )
                )  # fmt: skip
    names = ["state", "action", "next_state", "probability", "start", "share"]
    share[3:, 0] = 1.0
    moves[3, :, 3] = moves[4, :, 4] = 1.0
    return pd.DataFrame(rows, columns=names), moves, start, share


def written(frame: pd.DataFrame, folder: Path, name: str = "world.csv") -> Path:
    path = folder / name
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return path


@pytest.mark.parametrize("name", ["world.csv", "world.parquet"])
def test_a_table_is_the_world_that_it_says(tmp_path: Path, name: str) -> None:
    frame, moves, start, share = table()
    world = dr.pipeline.read_mdp(written(frame.sample(frac=1.0, random_state=1), tmp_path, name), SCHEMA)
    np.testing.assert_allclose(world.mdp.transitions[0][MASK], moves[MASK], atol=1e-12)
    np.testing.assert_allclose(world.mdp.initial, start, atol=1e-12)
    np.testing.assert_allclose(world.behaviour, np.repeat(share[None], 6, axis=0), atol=1e-12)
    # the value of what people do, by a slow account in the file's units
    here, gone, expected = start.copy(), np.einsum("sa,sat->st", share, moves), 0.0
    for _ in range(6):
        after = (here[:3, None] * gone[:3]).sum(axis=0)
        expected += 3.0 * after[4] - after[3]
        here = here @ gone
    assert 4.0 * policy_value(
        world.mdp, policy_rows(world.mdp.layout, world.behaviour)
    ) - 6.0 == pytest.approx(expected, abs=1e-9)
    assert world.question.bounds == (-1.0, 3.0)
    usual = world._expected[2][world.question.layout.row_index[5, 0]]
    assert -1.0 + 4.0 * usual == pytest.approx(expected, abs=1e-9)


def test_a_censored_end_of_a_table_pays_the_middle(tmp_path: Path) -> None:
    """And the forecast's gains are judged with the worst of it."""
    frame, *_ = table()
    schema = replace(SCHEMA, censored=3, outcomes={4: 3.0}, low=0.0)
    world = dr.pipeline.read_mdp(written(frame, tmp_path), schema)
    same = dr.pipeline.read_mdp(
        written(frame, tmp_path), replace(schema, censored=None, outcomes={3: 1.5, 4: 3.0})
    )
    np.testing.assert_array_equal(world.mdp.rewards, same.mdp.rewards)
    assert world.returns.censored == 3
    both = [
        dr.pipeline.gain_power(one, 100_000, dr.Central(epsilon=10.0, delta=1e-6), draws=5)
        for one in (world, same)
    ]
    assert both[0].chance < both[1].chance


def test_what_is_left_out_is_alike_for_all(tmp_path: Path) -> None:
    frame, *_ = table()
    world = dr.pipeline.read_mdp(written(frame.drop(columns=["start", "share"]), tmp_path), SCHEMA)
    np.testing.assert_allclose(world.mdp.initial, [1 / 3, 1 / 3, 1 / 3, 0, 0])
    np.testing.assert_allclose(world.behaviour[0, :3], [[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])


def test_rewards_of_the_table_and_known_ones(tmp_path: Path) -> None:
    frame, moves, start, share = table()
    paid = {
        ("mild", "A"): 0.5,
        ("mild", "B"): -1.0,
        ("ill", "A"): 2.0,
        ("worse", "A"): 0.0,
        ("worse", "B"): 3.0,
    }
    frame["reward"] = [paid[pair] for pair in zip(frame["state"], frame["action"], strict=True)]
    schema = replace(SCHEMA, outcomes=None)
    world = dr.pipeline.read_mdp(written(frame, tmp_path), schema)
    each = np.array([[0.5, -1.0], [2.0, 0.0], [0.0, 3.0], [0.0, 0.0], [0.0, 0.0]])
    here, expected = start.copy(), 0.0
    for _ in range(6):
        expected += float(here @ (share * each).sum(axis=1))
        here = here @ np.einsum("sa,sat->st", share, moves)
    assert 4.0 * world.usual - 6.0 == pytest.approx(expected, abs=1e-9)
    known = replace(schema, known=((each + 1.0) / 4.0)[None])
    again = dr.pipeline.read_mdp(written(frame.drop(columns="reward"), tmp_path), known)
    assert again.usual == pytest.approx(world.usual, abs=1e-12)
    assert again.best == pytest.approx(world.best, abs=1e-12)
    assert world.best > 0.0
    with pytest.raises(ValueError, match="reward"):
        dr.pipeline.read_mdp(written(frame.drop(columns="reward"), tmp_path), schema)


def changed(**how: Any) -> pd.DataFrame:
    frame, *_ = table()
    for column, cell in how.items():
        frame.loc[0, column] = cell
    return frame


REFUSED = {
    "probabilities of state mild, action A add up to": changed(probability=0.999),
    "probability = 1.5 in row 0: must be in": changed(probability=1.5),
    "start of state mild differs between rows": changed(start=0.4),
    "share of state mild, action A differs": changed(share=0.123),
    "state = 'mad' in row 0: must be one of the labels": changed(state="mad"),
    "next_state = 'gone' in row 0": changed(next_state="gone"),
    "state dead is an end: must have no rows": changed(state="dead"),
    "state ill, action B is not admissible": pd.concat(
        [table()[0], pd.DataFrame([("ill", "B", "home", 1.0, 0.3, 0.0)], columns=table()[0].columns)]
    ),
    "state worse, action B has no rows": table()[0].query("not (state == 'worse' and action == 'B')"),
    "must have one row for each state, action and next state": pd.concat([table()[0], table()[0].iloc[:1]]),
    "column 'probability' must hold numbers": changed().assign(probability="a lot"),
    "start adds up to 0.5 over states": changed().assign(start=[0.5] * 10 + [0.0] * 15),
    "share of state mild adds up to": changed().assign(share=0.3),
    "column": changed().rename(columns={"share": "shares"}),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_refused(said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        dr.pipeline.read_mdp(written(REFUSED[said], tmp_path), SCHEMA)


def test_by_the_command(tmp_path: Path) -> None:
    write_schema(SCHEMA, tmp_path / "S.toml")
    path = written(table()[0], tmp_path)
    asked = ["power", "--schema", str(tmp_path / "S.toml"), "--users", "20000", "--epsilon", "1"]
    asked += ["--delta", "1e-6", "--draws", "3"]
    done = CliRunner().invoke(app, [*asked, "--world", str(path), "--json"])
    assert done.exit_code == 0, done.output
    world = dr.pipeline.read_mdp(path, SCHEMA)
    assert f'"best": {world.best}'[:16] in done.output
    gone = CliRunner().invoke(app, [*asked, "--world", str(tmp_path / "no.csv")])
    assert gone.exit_code != 0
    assert "must be an environment or a file" in str(gone.exception) + gone.output


def test_a_table_says_what_the_world_it_was_written_from_does(tmp_path: Path) -> None:
    """Forecasts of a world in Python and of its table agree."""
    frame, moves, start, share = table()
    paid = np.zeros((5, 2, 5))
    paid[:3, :, 3], paid[:3, :, 4] = -1.0, 3.0
    mdp = TabularMDP(
        moves, ((paid + 1.0) / 4.0)[None], start, horizon=6, mask=SCHEMA.layout.mask, terminal=(3, 4)
    )
    returns = ReturnBounds(-1.0, 3.0, terminal=(3, 4), outcomes={3: -1.0, 4: 3.0})
    own = dr.pipeline.PublicMDP(mdp, np.repeat(share[None], 6, axis=0), returns, 4.0)
    read = dr.pipeline.read_mdp(written(frame, tmp_path), SCHEMA)
    one = dr.Central(epsilon=2.0, delta=1e-6)
    a, b = (dr.pipeline.gain_power(world, 30_000, one, draws=5) for world in (own, read))
    assert a.gain == pytest.approx(b.gain, abs=1e-9)
    assert a.chance == b.chance
