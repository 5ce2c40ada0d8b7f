"""Two examples of each command, printed at the end of the command's help text."""

from __future__ import annotations

EXAMPLES = {
    "list": ("discreet list", "discreet list --json"),
    "describe": ("discreet describe noise-aware", "discreet describe riverswim"),
    "run": (
        "discreet run --privatizer central --epsilon 1 --delta 1e-6 --seeds 2",
        "discreet run --learner dp-ucbvi --privatizer central --epsilon 10 --set bonus_scale=0.1",
    ),
    "estimate": (
        "discreet estimate --privatizer central --epsilon 1 --delta 1e-6",
        "discreet estimate --schema SCHEMA.toml --users 30000 --epsilon 1 --delta 1e-6",
    ),
    "merge": ("discreet merge one two --out both", "discreet merge results-* --out all"),
    "sweep": ("discreet sweep showcase.toml", "discreet sweep showcase.toml --list"),
    "compare": ("discreet compare results/showcase", "discreet compare results/showcase --format markdown"),
    "plot": ("discreet plot results/showcase", "discreet plot results/showcase --out regret.pdf"),
    "tune": (
        "discreet tune --learner psrl --trials 32 --out results/tune-psrl",
        "discreet tune --learner dp-ucbvi --privatizer central --epsilon 1 --set replan_growth=1.1",
    ),
    "schema": (
        "discreet schema --init records",
        "discreet schema --init people.parquet --out SCHEMA.toml",
    ),
    "prepare": (
        "discreet prepare records --schema declaration.toml --out ward",
        "discreet prepare records --source decimal=, --schema declaration.toml --out ward",
    ),
    "discretize": (
        "discreet discretize estimate --schema P.toml --users 20000 --centres 20 --epsilon 1",
        "discreet discretize fit records --schema P.toml --centres 20 --epsilon 1 --out fitted",
    ),
    "learn": (
        "discreet learn people.parquet --schema SCHEMA.toml --epsilon 1 --delta 1e-6 --out policy",
        "discreet learn people.parquet --schema SCHEMA.toml --epsilon 1 --learner dp-apvi --out policy",
    ),
    "dry-run": (
        "discreet dry-run SCHEMA.toml --users 30000 --epsilon 1 --delta 1e-6 --out dry",
        "discreet dry-run SCHEMA.toml --users 1000 --rho 0.5 --out dry",
    ),
    "replan": (
        "discreet replan policy/release.parquet --unsupported behaviour --out careful",
        "discreet replan policy/release.parquet --set support=6 --out other",
    ),
    "evaluate": (
        "discreet evaluate plan.csv --from-release policy",
        "discreet evaluate rule.csv other.csv --from-release policy --made outside --compare",
    ),
    "judge": (
        "discreet judge column:planned --log clicks.parquet --schema clicks.toml --epsilon 3 --delta "
        "1e-6 --out judged",
        "discreet judge --schema clicks.toml --users 100000 --epsilon 3 --delta 1e-6 --set cap=10 "
        "--set expected=0.004",
    ),
    "aggregate": (
        "discreet aggregate --new-key run.key",
        "discreet aggregate may.parquet --schema SCHEMA.toml --key run.key --out may.tally",
    ),
    "power": (
        "discreet power --schema SCHEMA.toml --target-gain 0.1 --epsilon 3 --delta 1e-6",
        "discreet power --schema SCHEMA.toml --world icu-sepsis --users 20000 --epsilon 3",
    ),
    "verify": ("discreet verify policy", "discreet verify policy --public-key officer.key.pub"),
    "ledger": (
        "discreet ledger",
        "discreet ledger --dataset ward --limit 5 --delta 1e-6",
    ),
    "ledger recover": ("discreet ledger recover", "discreet ledger recover runs --finish"),
    "simulate-data": (
        "discreet simulate-data random --users 6000 --out people.parquet",
        "discreet simulate-data icu-sepsis --policy expert --users 200000 --out icu.parquet",
    ),
    "synthesize": (
        "discreet synthesize policy --users 100000 --out synthetic.parquet",
        "discreet synthesize policy --users 1000 --members 10 --seed 1 --out synthetic.csv",
    ),
    "keys": ("discreet keys new officer.key", "discreet keys show officer.key"),
    "registry": (
        "discreet registry policy --out ward_2026.yaml",
        "discreet registry policy --status Pending --out ward_2026.yaml",
    ),
    "crosswalk": ("discreet crosswalk policy", "discreet crosswalk policy --out crosswalk.md"),
    "sign": (
        "discreet sign policy --key officer.key",
        "discreet sign policy --key officer.key --name Officer",
    ),
    "serve": ("discreet serve study.toml --check", "discreet serve study.toml --dry-run 1000 --stay 30"),
    "shuffler": (
        "discreet shuffler shuffle.toml --key",
        "discreet shuffler shuffle.toml --service https://study.example --service-key KEY",
    ),
    "check-plugin": ("discreet check-plugin", "discreet check-plugin my_module"),
    "check-noise": (
        "discreet check-noise staircase:Staircase",
        "discreet check-noise my_module:MyNoise --scale 2 --grid 16",
    ),
    "check-vector": (
        "discreet check-vector my_module:my_vector",
        "discreet check-vector my_module:my_vector --env ward --context public.npz",
    ),
    "audit": (
        "discreet audit --privatizer central --epsilon 1 --delta 1e-6",
        "discreet audit --all --epsilon 1 --out audits.md",
    ),
    "warmup": ("discreet warmup", "discreet warmup --json"),
}


def examples_of(name: str) -> str | None:
    """Return the examples at the end of a command's help text; None if the command has no examples."""
    return "\n\n".join(("Examples:", *EXAMPLES[name])) if name in EXAMPLES else None
