"""Labels that distinguish runs in figures, legends, tables and data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.accounting.text.guarantee_sentences import up
from discreet.experiments.run_config import MADE_BY, identity

if TYPE_CHECKING:
    from discreet.experiments.seed_run import FinishedRun

_TRUST = {"joint": "joint DP", "local": "local DP", "shuffle": "shuffle DP"}
_LONGEST = 40  # Largest number of characters of a value in a label.
# Settings that a label names first, because readers look for them.
_FIRST = ("learner", "privatizer", "preset", "options", "epsilon", "delta")
_OF_CODE = {f"{MADE_BY}.kernels": "kernels"}


def privacy_words(guarantee: Any) -> str:
    """Return the trust model and the true budget as text, for example ``joint DP, ε = 2.1 (stated 1)``."""
    if guarantee.trust == "none" or guarantee.epsilon is None:
        return "not private"
    nominal, digits = guarantee.epsilon_nominal, 3
    differs = nominal is not None and not np.isclose(nominal, guarantee.epsilon, rtol=1e-6, atol=0.0)
    while differs and digits < 7 and up(guarantee.epsilon, digits) == f"{nominal:.{digits}g}":
        digits += 1  # show more digits, so that the text is "1.003 (stated 1)" and not "1 (stated 1)"
    words = f"{_TRUST.get(guarantee.trust, guarantee.trust)}, ε = {up(guarantee.epsilon, digits)}"
    if guarantee.delta:
        words += f", δ = {up(guarantee.delta, 2)}"
    return f"{words} (stated {nominal:.{digits}g})" if differs else words


def said_options(options: Mapping[str, Any], *first: str | None) -> str:
    """Return the part of a label that states preset and options, such as `` (paper, bonus_scale=0.1)``."""
    bare = [name.rpartition(".")[2] for name in options]
    given = [
        f"{name if short == 'preset' or bare.count(short) > 1 else short}={value}"
        for (name, value), short in zip(options.items(), bare, strict=True)
    ]
    said = [*(word for word in first if word), *given]
    return f" ({', '.join(said)})" if said else ""


def short_labels(results: Sequence[FinishedRun]) -> tuple[list[str], str]:
    """Return one label per result, and a string with the options that all results share.

    Labels of different runs are made distinct by the settings that differ.
    """
    given = [_in_label(result) for result in results]
    shared = {k: v for k, v in given[0].items() if v is not None and all(g.get(k) == v for g in given)}
    if len(results) < 2 or not shared:
        return _distinct(results, [result.label for result in results]), ""
    labels = []
    for result, own in zip(results, given, strict=True):
        rest = {name: value for name, value in own.items() if name not in shared}
        labels.append(result.label.replace(_said(own), _said(rest), 1))
    return _distinct(results, labels), _said(shared).strip(" ()")


def _in_label(result: FinishedRun) -> dict[str, Any]:
    """Return the preset and options that the label names; empty if the user chose the label."""
    given = {"preset": result.config.get("preset"), **result.about.options}
    return given if _said(given) in result.label else {}


def _said(given: Mapping[str, Any]) -> str:
    return said_options({k: v for k, v in given.items() if k != "preset"}, given.get("preset"))


def _distinct(results: Sequence[FinishedRun], labels: Sequence[str]) -> list[str]:
    """Return the labels, extended by settings so that different runs have different labels."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for i, (result, label) in enumerate(zip(results, labels, strict=True)):
        groups.setdefault((label, privacy_words(result.guarantee), result.environment), []).append(i)
    found = list(labels)
    for group in groups.values():
        for i, added in zip(group, _differences([results[i] for i in group]), strict=True):
            found[i] = f"{labels[i]}{added}"
    return found


def _differences(results: Sequence[FinishedRun]) -> list[str]:
    """Return, for each result, a string with the settings in which the results differ."""
    tables = [identity({**result.config, "seed": result.seed}) for result in results]
    keys = {key for table in tables for key in table}
    differing = [key for key in keys if any(table.get(key) != tables[0].get(key) for table in tables)]
    if not differing:
        return [""] * len(results)
    order = {name: place for place, name in enumerate(_FIRST)}
    differing.sort(key=lambda key: (order.get(key.partition(".")[0], len(order)), key))
    texts = [
        ", ".join(f"{_OF_CODE.get(key, key.removeprefix('options.'))}={table[key]}"
                  for key in differing if key in table and len(str(table[key])) <= _LONGEST)
        for table in tables
    ]  # fmt: skip
    distinct: list[str] = list(dict.fromkeys(str(sorted(table.items())) for table in tables))
    if len(set(texts)) < len(distinct):  # some settings are too long for a label, so the runs are numbered
        numbers = [distinct.index(str(sorted(table.items()))) + 1 for table in tables]
        texts = [", ".join(filter(None, (text, f"run {n}"))) for text, n in zip(texts, numbers, strict=True)]
    return [f" [{text}]" if text else "" for text in texts]
