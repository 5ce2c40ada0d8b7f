"""Labels of results: what tells them from each other, in few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.experiments.results import Result

__all__ = ["said_options", "short_labels"]


def said_options(options: Mapping[str, Any], *first: str | None) -> str:
    """Preset and options as they were given, for a label: `` (paper, bonus_scale=0.1)``."""
    given = [f"{name.rpartition('.')[2]}={value}" for name, value in options.items()]
    said = [*(word for word in first if word), *given]
    return f" ({', '.join(said)})" if said else ""


def short_labels(results: Sequence[Result]) -> tuple[list[str], str]:
    """Labels without the options that all results share, and those options as text (maybe empty)."""
    given = [{"preset": r.config.get("preset"), **r.config.get("options", {})} for r in results]
    shared = {k: v for k, v in given[0].items() if v is not None and all(g.get(k) == v for g in given)}
    if len(results) < 2 or not shared:  # nothing to set apart
        return [result.label for result in results], ""
    labels = []
    for result in results:
        options, preset = result.config.get("options", {}), result.config.get("preset")
        rest = {k: v for k, v in options.items() if k not in shared}
        full, short = (
            said_options(options, preset),
            said_options(rest, None if "preset" in shared else preset),
        )
        labels.append(result.label.replace(full, short, 1))
    preset = shared.pop("preset", None)
    return labels, said_options(shared, preset).strip(" ()")
