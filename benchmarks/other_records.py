"""Records of other libraries and deployments: what of their stated epsilon can be recomputed.

``python -m benchmarks.other_records`` reads ``benchmarks/leaderboard/others``, and writes
``benchmarks/other_records.md``. With ``--check``, it writes nothing, and the exit status is 1 if the page
differs.

A record is a TOML file with ``system = "other"``, a source, and a ``statement``: relation, unit, epsilon as
it is printed, delta, and optionally ``events``, which are facts about the noise:

- ``gaussian`` (``scale`` or ``mu``) and ``laplace`` (``scale``); with ``scale`` also ``shift``, the largest
  change in l2 or l1 norm (default 1), and ``count``, the number of such sums (default 1);
- ``classical gaussian`` (``epsilon``): scale sqrt(2 ln(1.25 / delta)) / epsilon;
- ``zcdp`` (``rho``): a bound on the loss, not the noise itself;
- ``sampled gaussian`` (``scale``, ``rate``, ``steps``): each step takes each example with probability
  ``rate``.

Closed forms are those of the independent verifier (``checker/verify_statement.py``). Epsilon of sampled
Gaussian noise is computed by dp-accounting, as an upper bound. A statement is

- *recomputed* if an upper bound on epsilon is at most the stated epsilon plus half a unit of its last digit;
- *refuted* if a lower bound on epsilon is above that. Only Gaussian and Laplace noise have such a bound here;
- *stated only* otherwise, for example if no events are known, or if shuffled batches are accounted as Poisson
  samples.

No code of others is run. A pull request can add a record, or answer in ``note``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.verifier import verifier
from discreet.core import checks
from discreet.utils.markdown_table import markdown
from discreet.utils.toml_file import read_toml

HERE = Path(__file__).parent / "leaderboard" / "others"
OUT = Path(__file__).with_suffix(".md")
RELATIONS = ("replace", "add-remove", "sensitivity of the caller", "not stated")
SAMPLINGS = ("poisson", "shuffled")
KINDS: Mapping[str, tuple[frozenset[str], ...]] = {
    "gaussian": (frozenset({"scale"}), frozenset({"mu"})),
    "laplace": (frozenset({"scale"}),),
    "classical gaussian": (frozenset({"epsilon"}),),
    "zcdp": (frozenset({"rho"}),),
    "sampled gaussian": (frozenset({"scale", "rate", "steps"}),),
}
_SUMS = {"shift", "count"}
_KEYS = {"format", "system", "title", "source", "address", "note", "statement"}
_STATED = {"library", "version", "commit", "relation", "unit", "epsilon", "delta", "sampling", "events"}


@dataclass(frozen=True)
class OtherRecord:
    """A statement of others, checked for form.

    title, source, address : what it is about, and where it is stated.

    epsilon : as it is printed. delta, relation, unit : what it is about.

    events : facts about the noise; empty if none is known.

    shuffled : True if batches are not Poisson samples. note : remark of who submitted it, or an answer.
    """

    title: str
    source: str
    address: str
    epsilon: str
    delta: float
    relation: str
    unit: str
    events: tuple[Mapping[str, Any], ...]
    shuffled: bool
    note: str = ""

    @property
    def stated(self) -> float:
        """The stated epsilon."""
        return float(self.epsilon)

    @property
    def at_most(self) -> float:
        """The largest epsilon that is printed so: half a unit of the last digit is added."""
        exponent = Decimal(self.epsilon).as_tuple().exponent
        return self.stated + (0.5 * 10.0 ** int(exponent) if "." in self.epsilon else 0.0)


def read(path: Path) -> OtherRecord:
    """Return a record. Raises ``ValueError`` if a key is missing, unknown or not allowed."""
    content = read_toml(path)
    try:
        return _checked(content)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: {error}") from None


def _checked(content: Mapping[str, Any]) -> OtherRecord:
    _known("", content, _KEYS, _KEYS - {"note"})
    checks.choice("format", content["format"], (1,))
    checks.choice("system", content["system"], ("other",))
    stated = content["statement"]
    _known("statement.", stated, _STATED, {"relation", "unit", "epsilon", "delta"})
    events = tuple(stated.get("events", ()))
    for event in events:
        given = set(event) - {"kind"}
        sums = _SUMS if event["kind"] in ("gaussian", "laplace") and "scale" in event else set()
        if given - sums not in map(set, KINDS[checks.choice("kind", event["kind"], KINDS)]):
            raise ValueError(f"events: {event['kind']!r} must not have {sorted(given)}")
        for name in given:
            checks.positive(name, event[name])
    sampled = any(event["kind"] == "sampled gaussian" for event in events)
    if sampled != ("sampling" in stated):
        raise ValueError("sampling: must be given exactly for sampled events")
    sampling = checks.choice("sampling", stated.get("sampling", "poisson"), SAMPLINGS)
    if sampled and len(events) > 1:
        raise ValueError("events: sampled Gaussian noise must be the only event")
    if not str(content["address"]).startswith("https://"):
        raise ValueError(f"address = {content['address']!r}: must begin with https://")
    checks.positive("epsilon", float(stated["epsilon"]))
    return OtherRecord(
        content["title"], content["source"], content["address"], stated["epsilon"],
        checks.real("delta", stated["delta"], 0.0, 1.0, open_high=True),
        checks.choice("relation", stated["relation"], RELATIONS), stated["unit"], events,
        sampling == "shuffled", content.get("note", ""),
    )  # fmt: skip


def _known(where: str, table: Mapping[str, Any], allowed: set[str], needed: set[str]) -> None:
    for name in sorted(needed - set(table)):
        raise ValueError(f"{where}{name}: is missing")
    for name in sorted(set(table) - allowed):
        raise ValueError(f"{where}{name}: is unknown")


# ------------------------------------------------------------------------------------ recomputation
def bounds(record: OtherRecord) -> tuple[float, float] | None:
    """Return a lower and an upper bound on epsilon at the stated delta, or None if no events are known.

    The lower bound is 0 if none is known. For shuffled batches, the bounds are those of Poisson samples.
    """
    kinds = {event["kind"].removeprefix("classical ") for event in record.events}
    if not kinds:
        return None
    if kinds == {"laplace"} and not record.delta:
        epsilon = math.fsum(
            event.get("count", 1) * event.get("shift", 1) / event["scale"] for event in record.events
        )
        return epsilon, epsilon
    if kinds == {"gaussian"}:
        mu = math.sqrt(math.fsum(_mu(event, record.delta) ** 2 for event in record.events))
        epsilon = float(verifier().gaussian_epsilon(mu, record.delta))
        return epsilon, epsilon
    if kinds == {"zcdp"}:
        rho = math.fsum(event["rho"] for event in record.events)
        return 0.0, float(verifier().zcdp_epsilon(rho, record.delta))
    if kinds == {"sampled gaussian"}:
        event = record.events[0]
        return 0.0, _sampled(event["scale"], event["rate"], event["steps"], record.delta)
    raise ValueError(f"events: {sorted(kinds)} at delta = {record.delta:g} cannot be recomputed together")


def _mu(event: Mapping[str, Any], delta: float) -> float:
    if event["kind"] == "classical gaussian":
        return float(event["epsilon"]) / math.sqrt(2 * math.log(1.25 / delta))
    if "mu" in event:
        return float(event["mu"])
    return math.sqrt(event.get("count", 1)) * float(event.get("shift", 1)) / float(event["scale"])


@cache
def _sampled(scale: float, rate: float, steps: int, delta: float) -> float:
    """Return an upper bound on epsilon of Gaussian noise on Poisson samples, by dp-accounting."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    one = losses.from_gaussian_mechanism(scale, sampling_prob=rate, value_discretization_interval=1e-4)
    return float(one.self_compose(steps).get_epsilon_for_delta(delta))


def verdict(record: OtherRecord) -> str:
    """Return "recomputed", "refuted" or "stated only"."""
    found = bounds(record)
    if found is None or record.shuffled:
        return "stated only"
    low, high = found
    slack = 1e-6  # numbers such as a scale are printed with some ten digits
    if high <= record.at_most * (1 + slack):
        return "recomputed"
    return "refuted" if low > record.at_most * (1 + slack) else "stated only"


def replaced(record: OtherRecord) -> str:
    """Return the guarantee if a record is replaced: two changes where one is added or removed."""
    found = bounds(record)
    if record.relation == "replace":
        return "same relation"
    if record.relation != "add-remove" or found is None or verdict(record) != "recomputed":
        return "not known"
    return f"({2 * found[1]:.3g}, {(1 + math.exp(found[1])) * record.delta:.2g})"


ORDER = ("recomputed", "stated only", "refuted")
_BEGIN = """
# Records of other libraries and deployments

`python -m benchmarks.other_records` writes this page from the files in
[leaderboard/others](leaderboard/others). Its docstring states the rules. ε is recomputed from facts that the
source states, for the source's neighbouring relation. No data and no code of others were used. The tables are
no rank, because units differ.

*Recomputed* says that the stated noise gives at most the stated ε; half a unit of the last digit is allowed.
It does not say that noise was drawn so, or that the sensitivity is right. *Stated only* says that the facts
that were submitted do not determine ε, or that another way of sampling was accounted for. *Refuted* says that
the stated noise has a larger ε.
"""
_END = """
*If replaced*: for the neighbours of this library. A record that is replaced is one removed and one added,
which costs (2ε, (1 + e^ε) δ). To submit a record or an answer, open a pull request with a file like those in
the folder.
"""


def page(records: Sequence[OtherRecord]) -> str:
    """Return the page: one table for each verdict, so that no rank mixes them."""
    parts = [" ".join(lines.split("\n")) for lines in _BEGIN.strip().split("\n\n")]
    for kind in ORDER:
        rows = [
            [
                "statement",
                "unit, relation",
                "stated (ε, δ)",
                "ε found, at most",
                "if replaced",
                "source",
                "note",
            ]
        ]
        rows += [_row(one) for one in records if verdict(one) == kind]
        title = f"## {kind.capitalize()} ({len(rows) - 1})"
        parts += [title, markdown(rows) if len(rows) > 1 else "None."]
    parts.append(" ".join(_END.split()))
    return "\n\n".join(parts) + "\n"


def _row(record: OtherRecord) -> list[str]:
    found = bounds(record)
    number = "-" if found is None else f"{found[1]:.5g}"
    return [
        record.title, f"{record.unit}; {record.relation}", f"({record.epsilon}, {record.delta:g})",
        f"{number} (as Poisson samples)" if record.shuffled else number,
        replaced(record), f"[{record.source}]({record.address})", record.note,
    ]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Write the page, or with ``--check`` compare it. Returns the exit status."""
    text = page([read(path) for path in sorted(HERE.glob("*.toml"))])
    if "--check" in arguments:
        return int(OUT.read_text("utf-8") != text)
    OUT.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
