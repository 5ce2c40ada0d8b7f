"""How often is the gain shown for the tutorial's ward, and how often if its declaration has a hole?

One draw is one release of the same prepared rows, with fresh Gaussian noise from a seed, and the verdict on
the default policy of ``DecisionPoints``. Folders are those that ``discreet prepare`` writes:

    python docs/examples/ward/make_records.py --patients 20000 --out records
    discreet prepare records --source decimal=, --schema docs/examples/ward/declaration.toml --out ward
    python -m benchmarks.studies.ward_verdicts ward --epsilon 3 --draws 200

docs/tutorials/data.md quotes the shares.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.rng import Seeded
from discreet.data.row_batches import open_source
from discreet.data.schema import read_schema
from discreet.data.validate import episodes
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.learners.ope.transition_gains import path_of
from discreet.learners.ope.verdict import KINDS, verdict_of
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate
from discreet.mechanisms.privatizers.central import Central
from discreet.utils.markdown_table import markdown

DELTA = 1e-6


def verdicts(folder: Path, epsilon: float | None, draws: int, seed: int = 0) -> Counter[str]:
    """Count the kinds of verdict over releases of one prepared folder.

    epsilon : at δ = 1e-6; None: exact sums, of which one draw is enough. draws : at least 1. seed : of the
    noise.
    """
    schema = read_schema(folder / "schema.toml")
    question = FirstVisits(schema.spec(), schema.episodes_per_user)
    query, rows = question.query(), question.layout.rows
    tally, users = PartialAggregate(query, None), 0
    for part in episodes(open_source(folder / "rows.parquet", schema)):
        tally.add(question.to_records(part.trajectories), part.user)
        users = max(users, int(part.user.max()) + 1)
    cells = tally.cells()
    sums = cells[:rows], cells[rows:-rows].reshape(rows, -1), cells[-rows:]
    scales = np.zeros(3)
    if epsilon is not None:
        privatizer = Central(epsilon=epsilon, delta=DELTA, noise="gaussian")
        own = privatizer.stored_mechanism(query, Seeded()).scales
        scale = dict(zip(query.row_families, own.tolist(), strict=True))
        scales = np.array([scale[name] for name in (VISITS, TRANSITIONS, CENTERED_REWARDS)])
    found: Counter[str] = Counter()
    for draw in range(draws):
        noise = np.random.default_rng([seed, draw])
        visits, moves, returns = (
            table + size * noise.standard_normal(table.shape)
            for size, table in zip(scales, sums, strict=True)
        )
        path = path_of(question.sums_of(visits, moves, returns, *scales.tolist(), people=users))
        found[verdict_of(path, path.default).kind] += 1
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("folders", nargs="+", type=Path, help="made by `discreet prepare`")
    parser.add_argument("--epsilon", default="3", help="or none")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the noise, from 0")
    given = parser.parse_args(argv)
    epsilon = None if given.epsilon == "none" else float(given.epsilon)
    lines: list[tuple[str, ...]] = [("folder", *KINDS)]
    for folder in given.folders:
        found = verdicts(folder, epsilon, given.draws, given.seed)
        lines.append((folder.name, *(str(found[kind]) for kind in KINDS)))
    print(markdown(lines))


if __name__ == "__main__":
    main()
