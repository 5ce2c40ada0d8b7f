"""Files are judged, and counted, as a plain reading of the rules does it, which shares no code with ours.

A verdict that is too mild would be more than the noise was calibrated for.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from counted import count
from pyarrow import parquet

from discreet.core.layout import Layout
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema

H, S, A = 4, 5, 3
WRONG: dict[str, list[Any]] = {
    "user": [None],
    "episode": [0, 1, 2, None],
    "step": [0, 1, 2, 3, 4, -1, None, 2**40],
    "state": [0, 1, 2, 3, 4, 5, -1, None, 2**33],
    "action": [0, 1, 2, 3, -1, None],
    "reward": [-1.0, 3.0, 3.0000001, -1.0000001, float("inf"), 0.0, None, 2.5],
    "next_state": [0, 1, 2, 3, 4, 5, -1, None],
}


def scaled(reward: float, schema: Schema) -> float:
    return float(np.rint((reward - schema.low) / (schema.high - schema.low) * 2**20)) / 2**20


def judged(rows: list[dict[str, Any]], schema: Schema) -> tuple[Any, Any, int] | None:
    """(transitions (H, S, A, S), reward sums (H, S, A), users), or None if any rule is broken."""
    mask, people = schema.layout.mask, {}
    for row in rows:
        if row["user"] is None or row["episode"] is None:
            return None
        people.setdefault(row["user"], {}).setdefault(row["episode"], []).append(row)
    moves, sums = np.zeros((H, S, A, S)), np.zeros((H, S, A))
    for of_user in people.values():
        if len(of_user) > schema.episodes_per_user:
            return None
        for steps in of_user.values():
            if any(row["step"] is None for row in steps):
                return None
            steps.sort(key=lambda row: row["step"])
            if [row["step"] - schema.first_step for row in steps] != list(range(len(steps))):
                return None
            if len(steps) > H:
                return None
            here = None
            for h, row in enumerate(steps):
                s, a, z, r = row["state"], row["action"], row["next_state"], row["reward"]
                last, blank = h == len(steps) - 1, z is None
                if blank and last and schema.terminal:
                    z = schema.terminal[0]
                if None in (s, a, z, r) or not (0 <= s < S and 0 <= a < A and 0 <= z < S):
                    return None
                if not mask[s, a] or not schema.low <= r <= schema.high or (h and s != here):
                    return None
                if s in schema.terminal and not blank and z != s:
                    return None
                if last and len(steps) < H and z not in schema.terminal:
                    if schema.unfinished == "error":
                        return None
                    z = schema.terminal[0]
                moves[h, s, a, z] += 1
                sums[h, s, a] += scaled(r, schema)
                here = z
            for h in range(len(steps), H):
                idle = int(np.flatnonzero(mask[here])[0])
                moves[h, here, idle, here] += 1
                sums[h, here, idle] += scaled(0.0, schema)
    return moves, sums, len(people)


def spoiled(rows: list[dict[str, Any]], luck: random.Random) -> list[dict[str, Any]]:
    """Up to two rows changed, left out, given twice or to somebody else; in any order."""
    rows = [dict(row) for row in rows]
    for _ in range(luck.choice([0, 0, 1, 1, 2])):
        i, how = luck.randrange(len(rows)), luck.random()
        somebody = luck.choice(rows)["user"]
        if how < 0.5:
            column = luck.choice(list(WRONG))
            rows[i][column] = luck.choice([*WRONG[column], *([somebody] if column == "user" else [])])
        elif how < 0.65 and len(rows) > 1:
            del rows[i]
        elif how < 0.8:
            rows.append(dict(rows[i]))
        else:
            rows.append({**rows[i], "user": somebody, "step": luck.randrange(0, 5)})
    if luck.random() < 0.5:
        luck.shuffle(rows)
    return rows


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("seed", range(3))
def test_verdicts_and_counts_are_the_oracles(make, tmp_path, suffix, seed) -> None:
    mask, luck = np.ones((S, A), bool), random.Random(seed)
    mask[1, 2] = False
    path, verdicts = tmp_path / f"x{suffix}", set()
    for case in range(40):
        terminal = luck.choice([(4,), (4, 2)])
        schema = Schema(
            "t", "p", Layout(S, A, H, mask), first_step=luck.choice([0, 1]), low=-1.0, high=3.0,
            episodes_per_user=luck.choice([1, 2]), terminal=terminal,
            unfinished=luck.choice(["error", "terminal"]),  # type: ignore[arg-type]
        )  # fmt: skip
        named = (lambda user: f"u{user * 7 % 11}") if luck.random() < 0.4 else (lambda user: user * 7 % 11)
        rows = make.people(
            luck.randrange(1, 7), seed=100 * seed + case, each=luck.randint(1, schema.episodes_per_user),
            name=named,
        )  # fmt: skip
        for row in rows:
            row["step"] += schema.first_step
        rows = spoiled(rows, luck)
        if suffix == ".csv":
            make.save(rows, path)
        else:
            kinds = {"user": pa.string() if named(0) == "u0" else pa.int64(), "reward": pa.float64()}
            columns = {
                name: pa.array([row[name] for row in rows], kinds.get(name, pa.int64())) for name in rows[0]
            }
            parquet.write_table(pa.table(columns), path, row_group_size=luck.choice([1, 3, 100]))
        how = luck.choice([{}, {"batch_rows": 1}, {"batch_rows": 3, "memory": 200}])
        expected = judged(rows, schema)
        try:
            found = count(open_source(path, schema), **how)
        except ValueError:
            assert expected is None, (seed, case)
            verdicts.add("refused")
            continue
        assert expected is not None, (seed, case)
        verdicts.add("accepted")
        moves, sums, users = expected
        np.testing.assert_array_equal(schema.layout.from_rows(found.transitions), moves)
        np.testing.assert_allclose(schema.layout.from_rows(found.reward_sums), sums, atol=1e-12)
        assert found.users == users
    assert verdicts == {"accepted", "refused"}
