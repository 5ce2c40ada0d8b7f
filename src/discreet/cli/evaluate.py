"""Command ``evaluate``: gains of policies, estimated from an earlier release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.common import JsonFlag, announce_compilation, command, print_json


@command
def evaluate(
    policies: Annotated[
        list[str],
        typer.Argument(
            metavar="POLICY",
            help="Policies: .csv (state,action[,probability], or with step), .npy, .parquet of save_policy, "
            "policy.py, or folders with a policy.csv. Their intervals hold jointly.",
        ),
    ],
    from_release: Annotated[
        Path | None, typer.Option(help="Folder that `learn` made, or its release.parquet.")
    ] = None,
    made: Annotated[
        str,
        typer.Option(
            help="How the policies were made: train (from the training part), outside (fixed before the "
            "release), release (by dp-apvi or apvi, from all of it)."
        ),
    ] = "train",
    share: Annotated[float, typer.Option(help="Share of the training part, in (0, 1).")] = 0.5,
    level: Annotated[float, typer.Option(help="Joint confidence level of the intervals.")] = 0.95,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also compare each other policy with the first one.")
    ] = False,
    run_code: Annotated[bool, typer.Option("--run-code", help="Execute a policy.py.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Estimate the gain of any policy over the behaviour policy, from a release, without data or budget."""
    if from_release is None:
        raise ValueError("from-release is missing: give --from-release DIR, a folder that `learn` made")
    from discreet.core import checks

    checks.choice("made", made, ("train", "outside", "release"))
    announce_compilation()
    from discreet.pipeline.policy_evaluation import evaluate_with_release

    report = evaluate_with_release(
        from_release, policies, made=made, share=share, level=level, compare=compare,  # type: ignore[arg-type]
        run_code=run_code,
    )  # fmt: skip
    if as_json:
        print_json(report.to_dict())
        return
    print(report.to_markdown(), end="")
