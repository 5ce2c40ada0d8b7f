"""Documents about a release for readers outside the project: registry record, and page for regulators.

Both require a folder that passes verification.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from discreet.data.schema import read_schema
from discreet.pipeline.verify import verify
from discreet.reports.crosswalk import crosswalk_markdown
from discreet.reports.deployment_record import deployment_record, yaml_text
from discreet.reports.statement import LedgerLike
from discreet.reports.statement_page import JSON_NAME
from discreet.reports.statement_schema import read_json


def registry_record(
    folder: str | Path, *, status: str = "Draft", ledger: LedgerLike | None = None, learner: Any = None
) -> str:
    """Return the record of a release for the registry of deployments of differential privacy, in YAML.

    Parameters
    ----------
    folder : folder made by :func:`discreet.pipeline.learn.learn` or :func:`discreet.pipeline.learn.replan`.
    status : "Draft" or "Pending"; the registry's board sets the other values.
    ledger, learner : as for :func:`discreet.pipeline.verify.verify`

    Raises
    ------
    ValueError
        If the folder does not verify, protects no person (synthetic data, seeded noise, exact sums), or a
        line that the registry requires is not declared in the schema.
    """
    doc, declared = _verified(folder, ledger, learner)
    later, stated = 0, doc["ledger"]
    if ledger is not None and stated is not None:
        made = [one.number for one in ledger.entries(stated["dataset"]) if one.kind == "reserve"]
        later = sum(number > stated["number"] for number in made)
    return yaml_text(deployment_record(doc, declared, status, later))


def crosswalk(folder: str | Path, *, ledger: LedgerLike | None = None, learner: Any = None) -> str:
    """Return a Markdown page that lists a statement's numbers next to the texts of regulators.

    Parameters
    ----------
    folder : folder made by :func:`discreet.pipeline.learn.learn` or :func:`discreet.pipeline.learn.replan`.
    ledger, learner : as for :func:`discreet.pipeline.verify.verify`

    Raises
    ------
    ValueError
        If the folder does not verify, or protects no person (synthetic data, seeded noise, exact sums).
    """
    return crosswalk_markdown(*_verified(folder, ledger, learner))


def _verified(folder: str | Path, ledger: LedgerLike | None, learner: Any) -> tuple[Any, Any]:
    """Verify a folder. Returns the document of its statement, and the lines that its schema declares."""
    wrong = next((one.name for one in verify(folder, ledger, learner=learner) if not one.ok), "")
    if wrong:
        raise ValueError(f"folder = {str(folder)!r}: does not verify ({wrong}), and nothing was written")
    return read_json(Path(folder) / JSON_NAME), read_schema(Path(folder) / "schema.toml").declared
