"""Registry of learners, privatizers and environments by their names on the command line.

The built-in table is immutable. Names of plug-ins are added to it. Other packages add names with
:func:`register`. They call it from a module that the user names (``discreet run --plugin my_module``), or
from a module that an entry point of the group ``discreet.plugins`` names. The table contains dotted paths,
and an object is imported when it is first used. Options are given as text or as values, and are converted to
the annotated types of the class or function.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal, Union
from weakref import WeakKeyDictionary

from discreet.core import checks
from discreet.utils.toml_file import flat_options

if TYPE_CHECKING:
    import gymnasium

    from discreet.envs.mdp.tabular import TabularMDP

Kind = Literal["learner", "offline learner", "privatizer", "environment"]
KINDS: tuple[Kind, ...] = ("learner", "offline learner", "privatizer", "environment")
PLUGIN_GROUP = "discreet.plugins"
GYM_PREFIX = "gym:"
CODE_PREFIX = "code:"
BY_FLAG = ("preset", "epsilon", "delta")  # settings that have their own command-line flags


@dataclass(frozen=True)
class RegistryEntry:
    """Entry of the registry: a name, and the factory that builds the object.

    Parameters
    ----------
    kind, name : kind and name, as on the command line.
    target : dotted path ``module:attribute`` of the factory, or the factory itself.
    fixed : options that the name implies; options set by the user take precedence.
    summary : description in one line.
    fits : text that states the parts of a run with which the object can be combined.
    baseline : for a private learner, the name of the learner that is identical without noise.
    plugin : module that registered the name; None for built-in names.
    """

    kind: Kind
    name: str
    target: str | Callable[..., Any]
    summary: str
    fits: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    baseline: str | None = None
    plugin: str | None = None

    def factory(self) -> Callable[..., Any]:
        """Return the class or function that builds the object.

        Raises ``ValueError`` if a required package is not installed.
        """
        if not isinstance(self.target, str):
            return self.target
        module, _, attribute = self.target.partition(":")
        try:
            found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        except ImportError as error:
            raise ValueError(f"{self.kind} {self.name!r} cannot be loaded: {error}") from error
        return found


def _entries(kind: Kind, *rows: tuple[Any, ...]) -> dict[tuple[Kind, str], RegistryEntry]:
    return {(kind, row[0]): RegistryEntry(kind, *row) for row in rows}


_ONLINE, _OFFLINE = "discreet.learners.online", "discreet.learners.offline"
_PRIVATIZERS = "discreet.mechanisms.privatizers"
_MIXTURES = "none, central, local; linear mixtures (linear-mixture, hypercube)"
_CONTEXTS = "any privatizer; worlds of contexts"
_VECTORS = "none, central without trees; tables of states and actions"
_TRUNCATED = "any privatizer; heavy-riverswim, or worlds of discreet.envs.heavy_tailed"
_EXACT = "none: it needs exact sums (a baseline)"
_ANY, _IGNORES = "any privatizer", "any privatizer; ignores the noise law (a baseline)"

_BUILT_IN: Mapping[tuple[Kind, str], RegistryEntry] = types.MappingProxyType({
    **_entries("learner",
        ("ucb-vi", f"{_ONLINE}.ucbvi:UCBVI",
         "optimistic value iteration, Hoeffding bonus (Azar et al. 2017); not private", _IGNORES,
         {"bonus": "hoeffding"}),
        ("private-ucb-vi", f"{_ONLINE}.ucbvi:PrivateUCBVI",
         "optimistic value iteration on noisy counts, Hoeffding bonus (Chowdhury and Zhou 2021)", _ANY, {},
         "ucb-vi"),
        ("ucb-vi-bernstein", f"{_ONLINE}.ucbvi:UCBVI",
         "optimistic value iteration, Bernstein bonus (Azar et al. 2017); not private", _IGNORES,
         {"bonus": "bernstein"}),
        ("dp-ucbvi", f"{_ONLINE}.ucbvi:DPUCBVI",
         "optimistic value iteration on noisy counts, Bernstein bonus (Qiao and Wang 2023)", _ANY, {},
         "ucb-vi-bernstein"),
        ("psrl", f"{_ONLINE}.psrl:PSRL",
         "posterior sampling on exact counts (Osband et al. 2013); not private", _EXACT),
        ("rlsvi", f"{_ONLINE}.rlsvi:RLSVI",
         "randomised value functions on exact counts (Osband et al. 2016); not private", _EXACT),
        ("oppo", f"{_ONLINE}.policy_optimization:OPPO",
         "optimistic policy optimisation (Efroni et al. 2020); not private", _IGNORES),
        ("private-ucb-po", f"{_ONLINE}.policy_optimization:PrivateUCBPO",
         "optimistic policy optimisation on noisy counts (Chowdhury and Zhou 2021)", _ANY, {}, "oppo"),
        ("heavy-ucb-vi", f"{_ONLINE}.heavy_tails:HeavyUCBVI",
         "value iteration for heavy-tailed rewards, truncated by devices (after Wu et al. 2023)", _TRUNCATED),
        ("heavy-ucb-po", f"{_ONLINE}.heavy_tails:HeavyUCBPO",
         "policy optimization for heavy-tailed rewards, truncated by devices (after Wu et al. 2023)",
         _TRUNCATED),
        ("pucb", f"{_ONLINE}.pucb:PUCB",
         "private optimistic exploration that waits for counts above the noise (Vietri et al. 2020)", _ANY),
        ("noise-aware", f"{_ONLINE}.noise_aware:NoiseAwareUCBVI",
         "optimism from the noise law, rows shared over steps by empirical Bayes; no theorem",
         "any privatizer, but not trees"),
        ("joint", f"{_ONLINE}.joint_posterior:JointPosterior",
         "one stationary model fitted to all releases jointly, posterior samples; no theorem",
         "central without trees, or none; worlds declared stationary"),
        ("ldp-obi", f"{_ONLINE}.ldp_obi:LDPOBI",
         "optimistic backward induction under local privacy (Garcelon et al. 2021)", _ANY),
        ("sdp-pe", f"{_ONLINE}.policy_elimination:SDPPE",
         "policy elimination in stages, each asked for once (Bai et al. 2024); few policies only", _ANY),
        ("apeve", f"{_ONLINE}.policy_elimination:APEVE",
         "policy elimination with known rewards (Qiao et al. 2022); few policies only; not private",
         _IGNORES),
        ("sdp-pe-om", f"{_ONLINE}.occupancy_elimination:SDPPEOM",
         "policy elimination by occupancy measures, for problems of any size; no theorem", _ANY),
        ("dp-pg", f"{_ONLINE}.policy_gradient:DPPolicyGradient",
         "policy gradient on one noisy clipped vector a batch (He and Zhou 2025); no theorem", _VECTORS),
        ("dp-npg", f"{_ONLINE}.policy_gradient:DPNaturalPolicyGradient",
         "natural policy gradient on one noisy clipped vector a batch (He and Zhou 2025); no theorem",
         _VECTORS),
        ("lsvi-ucb", f"{_ONLINE}.lsvi_ucb:LSVIUCB",
         "batched LSVI-UCB on features of pairs (Jin et al. 2020; private: Luyo et al. 2021)",
         "none, central, local; worlds with features of pairs"),
        ("private-lsvi-ucb", f"{_ONLINE}.private_lsvi_ucb:PrivateLSVIUCB",
         "LSVI-UCB with a new policy at doubled noisy determinants (Ngo et al. 2022)",
         "none, central; worlds with features of pairs"),
        ("ucrl-vtr", f"{_ONLINE}.ucrl_vtr:UCRLVTR",
         "value-targeted regression in linear mixtures (Ayoub et al. 2020; private: Luyo et al. 2021)",
         _MIXTURES),
        ("ucrl-vtr-plus", f"{_ONLINE}.ucrl_vtr:UCRLVTRPlus",
         "the same weighted by variances (Zhou et al. 2021; private: Luyo et al. 2021)", _MIXTURES),
        ("linear-bandit", f"{_ONLINE}.linear_bandit:LinearBandit",
         "one decision for each user with a real-valued context; linear model, no theorem", _CONTEXTS),
        ("lin-ucb", f"{_ONLINE}.lin_ucb:LinUCB",
         "LinUCB on noisy sums of contexts (tree: Shariff and Sheffet 2018; local: Zheng et al. 2020)",
         _CONTEXTS),
        ("batched-lin-ucb", f"{_ONLINE}.lin_ucb:BatchedLinUCB",
         "LinUCB in batches of fixed size (Chowdhury and Zhou 2022, with central noise)", _CONTEXTS),
        ("lin-ts", f"{_ONLINE}.lin_ucb:LinTS",
         "linear Thompson sampling on contexts (Agrawal and Goyal 2013)", _CONTEXTS),
    ),
    **_entries("offline learner",
        ("dp-apvi", f"{_OFFLINE}.apvi:DPAPVI",
         "pessimistic value iteration from one private release of counts (Qiao and Wang 2023)",
         "tables of states and actions", {}, "apvi"),
        ("apvi", f"{_OFFLINE}.apvi:APVI",
         "pessimistic value iteration from exact counts (Yin and Wang 2021); not private",
         "tables of states and actions"),
        ("decision-points", f"{_OFFLINE}.decision_points:DecisionPoints",
         "the behaviour policy with a few changes that the data show to be better",
         "offline data; tables of states and actions; worlds declared stationary"),
        ("world-model", "discreet.pipeline.model_planner:ModelPlanner",
         "a plan in a private model: more changes than decision-points, which gain more with few users",
         "offline data; tables of states and actions; worlds declared stationary, with outcomes"),
        ("linear-advantage", f"{_OFFLINE}.linear_advantage:LinearAdvantage",
         "one private regression on visits with real-valued contexts, such as vital signs",
         "offline data; [context.columns] in the schema"),
        ("dp-pevi", f"{_OFFLINE}.linear_pevi:DPPEVI",
         "private PEVI: noisy Gram matrices and responses priced together; our default for features",
         "features of pairs", {}, "pevi"),
        ("dp-vapvi", f"{_OFFLINE}.linear_pevi:DPVAPVI",
         "variance-aware pessimistic regression on noisy sums (Qiao and Wang 2023)", "features of pairs", {},
         "vapvi"),
        ("pevi", f"{_OFFLINE}.linear_pevi:PEVI",
         "pessimistic value iteration by ridge regression (Jin et al. 2021); not private",
         "features of pairs"),
        ("vapvi", f"{_OFFLINE}.linear_pevi:VAPVI",
         "PEVI weighted by estimated variances (Yin et al. 2022); not private", "features of pairs"),
    ),
    **_entries("privatizer",
        ("none", f"{_PRIVATIZERS}.no_privacy:NoPrivacy", "exact sums; no guarantee", "any learner"),
        ("central", f"{_PRIVATIZERS}.central:Central",
         "a trusted curator adds noise to sums over time; joint differential privacy", "any learner"),
        ("local", f"{_PRIVATIZERS}.local:Local",
         "each user's device adds the noise; local differential privacy", "any learner"),
        ("shuffle", f"{_PRIVATIZERS}.shuffle:Shuffle",
         "devices flip coins, a shuffler lets out sums of batches; shuffle differential privacy",
         "any learner of per-step counts with public times of release"),
    ),
    **_entries("environment",
        ("riverswim", "discreet.envs:riverswim",
         "a chain of 6 states against the current, 2 actions, H = 20"),
        ("random", "discreet.envs:random_mdp", "a seeded random MDP of any size"),
        ("heavy-riverswim", "discreet.envs:heavy_riverswim",
         "RiverSwim with heavy-tailed rewards that devices truncate at a threshold"),
        ("switching-chain", "discreet.envs:switching_chain",
         "RiverSwim with speeds and actions that change from step to step"),
        ("combination-lock", "discreet.envs:combination_lock",
         "a seeded random MDP in which one sequence of actions leads to the reward"),
        ("bandit", "discreet.envs:bandit", "bandits in a row, plain or with random contexts"),
        ("gamble", "discreet.envs:gamble", "a safe action against gambles, one of which is worth it"),
        ("icu-sepsis", "discreet.envs:icu_sepsis",
         "716 states, 25 actions, estimated from intensive-care records (needs icu-sepsis)"),
        ("synthetic-linear", "discreet.envs:synthetic_linear",
         "the linear MDP of Qiao and Wang (2023): 2 states, 100 actions, d = 10, H = 20"),
        ("linear-mixture", "discreet.envs:linear_mixture",
         "a seeded mixture of m base models with unknown weights: S = 8, A = 4, H = 5, d = m = 5"),
        ("hypercube", "discreet.envs:hypercube",
         "the hard linear mixture of Zhou, Gu and Szepesvari (2021): a hidden corner at every step"),
        ("linear-mdp", "discreet.envs:random_linear",
         "a seeded random linear MDP with features in the simplex: S = 6, A = 3, H = 4, d = 4"),
        ("wide-linear", "discreet.envs:wide_linear",
         "a linear MDP of 2000 states, d = 24, H = 8, where tables learn nothing in time"),
        ("shared-contexts", "discreet.envs:shared_contexts",
         "real-valued contexts: features of each action, common coefficients; d = 10, A = 5"),
        ("action-contexts", "discreet.envs:per_action_contexts",
         "real-valued contexts: 9 columns of a user, coefficients of each action; A = 5"),
        ("fixed-arms", "discreet.envs:fixed_arms",
         "20 actions whose 10 features are the same for all users, common coefficients"),
    ),
})  # fmt: skip
_GYM = RegistryEntry(
    "environment",
    f"{GYM_PREFIX}ID",
    "discreet.envs:from_gymnasium",
    "a tabular Gymnasium environment by its transition table: gym:FrozenLake-v1 (needs gymnasium)",
)

_added: dict[tuple[Kind, str], RegistryEntry] = {}
_published_code: dict[str, Callable[..., Any]] = {}  # functions that set up the code of papers, by preset
_loaded_entry_points = False


# ------------------------------------------------------------------------------- reading the table
def _load_entry_points() -> None:
    """Import the plug-in modules of other packages once. A module that fails is skipped with a warning."""
    global _loaded_entry_points
    if _loaded_entry_points:
        return
    _loaded_entry_points = True
    for point in entry_points(group=PLUGIN_GROUP):
        try:
            found = point.load()
            if callable(found):
                found()
        except Exception as error:
            warnings.warn(f"plug-in {point.name!r} ({point.value}) cannot be loaded: {error!r}", stacklevel=3)


def entries(kind: Kind | None = None) -> tuple[RegistryEntry, ...]:
    """Return all entries, or all entries of one kind. Built-in entries come first, in the order of the
    table.
    """
    _load_entry_points()
    everything = (*_BUILT_IN.values(), _GYM, *_added.values())
    return tuple(entry for entry in everything if kind is None or entry.kind == kind)


def entry(kind: Kind, name: str) -> RegistryEntry:
    """Return the entry of a name.

    Raises ``ValueError`` if the name is unknown. The message states the most similar name and all known
    names.
    """
    checks.choice("kind", kind, KINDS)
    found = _BUILT_IN.get((kind, name)) or _added.get((kind, name))
    if found is None:
        _load_entry_points()
        found = _added.get((kind, name))
    if found is None and kind == "environment" and name.startswith(GYM_PREFIX):
        if name == GYM_PREFIX:
            raise ValueError(f"environment = {name!r}: must name a Gymnasium environment, gym:FrozenLake-v1")
        return replace(_GYM, name=name, fixed={"env_id": name.removeprefix(GYM_PREFIX)})
    if found is None:
        known = [e.name for e in entries(kind)]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{kind} = {name!r}: unknown{hint}; must be one of {', '.join(known)}")
    return found


def register(
    kind: Kind,
    name: str,
    factory: Callable[..., Any],
    *,
    summary: str = "",
    fits: str = "",
    baseline: str | None = None,
    **fixed: Any,
) -> None:
    """Add a name to the registry.

    Parameters
    ----------
    kind : "learner", "offline learner", "privatizer" or "environment".
    name : name on the command line. A name that another factory uses is rejected.
    factory : class or function that builds the object from keyword options. The annotations of these options
        are the types to which text on the command line is converted.
    summary : one line for ``discreet list``; the first line of the factory's docstring by default.
    fits : text that states the parts of a run with which the object can be combined.
    baseline : for a private learner, the name of the learner that must be identical without noise.
    fixed : options that the name implies.

    Raises
    ------
    ValueError
        If the kind is unknown, the name is empty or in use, or the factory cannot be called.
    """
    checks.choice("kind", kind, KINDS)
    if not isinstance(name, str) or not name or name.startswith((GYM_PREFIX, CODE_PREFIX)):
        raise ValueError(f"name = {name!r}: must be a non-empty text that does not begin with gym: or code:")
    if not callable(factory):
        raise ValueError(f"factory = {factory!r}: must be a class or function")
    taken = _BUILT_IN.get((kind, name)) or _added.get((kind, name))
    if taken is not None and _origin(taken.target) != _origin(factory):
        raise ValueError(
            f"name = {name!r}: this {kind} is registered already, by {taken.plugin or 'discreet'}"
        )
    documented = (inspect.getdoc(factory) or "").strip().splitlines()
    _added[kind, name] = RegistryEntry(
        kind,
        name,
        factory,
        summary or (documented[0] if documented else ""),
        fits,
        dict(fixed),
        baseline,
        getattr(factory, "__module__", None),
    )


def _origin(target: Any) -> tuple[str | None, str | None]:
    """Return the module and the qualified name of a factory.

    Factories with equal results count as the same factory. Therefore a module that is imported twice can
    register its names again.
    """
    return getattr(target, "__module__", None), getattr(target, "__qualname__", None)


def register_published_code(preset: str, setup: Callable[..., Any]) -> None:
    """Register the published code of a paper as a preset of runs.

    preset : text that begins with ``code:``. Other text raises ``ValueError``.
    setup : a function of (learner, privatizer, environment, users, epsilon) that returns a
        :class:`discreet.experiments.simulate.Setup`. Learner and privatizer are names, as on the command
        line.
    """
    if not isinstance(preset, str) or not preset.startswith(CODE_PREFIX) or preset == CODE_PREFIX:
        raise ValueError(f"preset = {preset!r}: must be a text that begins with {CODE_PREFIX}")
    _published_code[preset] = setup


def published_code(preset: str) -> Callable[..., Any]:
    """Return the function that is registered for a preset. Raises ``ValueError`` for an unknown preset."""
    if preset not in _published_code:
        known = f"must be one of {', '.join(_published_code)}" if _published_code else "none is registered"
        raise ValueError(
            f"preset = {preset!r}: unknown; {known} (the repository's papers register theirs: run it in a "
            "checkout with --plugin papers.presets)"
        )
    return _published_code[preset]


def load_plugin(module: str) -> tuple[RegistryEntry, ...]:
    """Import a plug-in module and return the entries that it registers.

    The module can be in the working directory. Raises ``ValueError`` if the module cannot be imported.
    """
    before = set(_added)
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"plugin = {module!r}: cannot be imported ({error})") from error
    return tuple(e for key, e in _added.items() if key not in before or e.plugin == module)


# ------------------------------------------------------------------------------------- options
@dataclass(frozen=True)
class OptionSpec:
    """Option of a class or function: its name, its type, and whether the option is required."""

    name: str
    annotation: Any
    required: bool

    def __str__(self) -> str:
        return f"{self.name}: {describe(self.annotation)}"


def options_of(factory: Callable[..., Any]) -> dict[str, OptionSpec]:
    """Return a mapping of names to the options of a factory, in the order of the parameters."""
    hints = _hints(factory)
    if is_dataclass(factory):
        return {
            f.name: OptionSpec(
                f.name, hints.get(f.name, Any), f.default is MISSING and f.default_factory is MISSING
            )
            for f in fields(factory)
            if f.init
        }
    return {
        p.name: OptionSpec(p.name, hints.get(p.name, Any), p.default is p.empty)
        for p in inspect.signature(factory).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }


def defaults_of(found: RegistryEntry) -> dict[str, Any]:
    """Return the default values of an entry's options.

    The values come from the signature of the factory, its default preset and the options that the name
    implies.
    """
    factory = found.factory()
    values: dict[str, Any] = {
        p.name: p.default
        for p in inspect.signature(factory).parameters.values()
        if p.default is not p.empty and isinstance(p.default, bool | int | float | str)
    }
    values |= {**_preset_table(factory, found.fixed).get("default", {}), **found.fixed}
    if values.get("replan_growth") not in (None, 1.0):
        values.pop("replan_every", None)  # it has no effect: replan_growth sets the times of releases
    return values


def descriptions_of(factory: Callable[..., Any]) -> dict[str, str]:
    """Return a mapping of the parameters of a factory to the first sentence about each of them.

    The sentences come from the docstring of the function, or of the class and its base classes.
    """
    found: dict[str, str] = {}
    for owner in factory.__mro__ if isinstance(factory, type) else (factory,):
        _, _, section = inspect.cleandoc(owner.__doc__ or "").partition("\nParameters\n----------\n")
        section = re.split(r"\n\S+\n-{3,}\n", section)[0]
        # Each item of the section has names at the left margin, an optional type, and indented lines.
        for names, kind, text in re.findall(r"^([\w, ]+?)(?: : (.*))?\n((?:[ ]+\S.*\n?)*)", section, re.M):
            sentence = _first_clause(" ".join((text or kind).split()))
            if sentence.startswith("As for "):  # refers to another class; a base class may have the text
                continue
            for name in names.split(","):
                found.setdefault(name.strip(), re.sub(r":\w+:`~?([^`]*)`", r"\1", sentence).rstrip(".:"))
    return found


def _first_clause(text: str) -> str:
    """Return the text before the first semicolon or the first end of a sentence outside brackets."""
    for end in re.finditer(r"(?<=\.)\s+(?=[A-Z])|;\s", text):
        before = text[: end.start()]
        # brackets are counted without regard to their kind, because of half-open intervals such as [0, 1)
        opened, closed = (sum(map(before.count, pair)) for pair in ("([", ")]"))
        if opened == closed:
            return before
    return text


@lru_cache(maxsize=256)
def _hints(factory: Callable[..., Any]) -> dict[str, Any]:
    """Return a mapping of the parameters of a factory to their annotations, as types.

    Annotations that only a type checker can resolve become ``Any``. The result is cached: do not change it.
    """
    try:
        return typing.get_type_hints(factory)
    except (NameError, AttributeError, TypeError):
        pass
    hints: dict[str, Any] = {}
    owners = reversed(factory.__mro__) if isinstance(factory, type) else (factory,)
    for owner in owners:
        space = vars(sys.modules.get(owner.__module__, typing))
        for name, annotation in getattr(owner, "__annotations__", {}).items():
            try:
                hints[name] = eval(annotation, dict(space)) if isinstance(annotation, str) else annotation
            except (NameError, AttributeError, TypeError):
                hints[name] = Any
    return hints


def _members(annotation: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union, with None last.

    If the annotation is not a union, it is the only alternative.
    """
    if typing.get_origin(annotation) in (Union, types.UnionType):
        flat = [member for part in typing.get_args(annotation) for member in _members(part)]
        return tuple(sorted(flat, key=lambda member: member is type(None)))
    return (annotation,)


_PLAIN = {bool: "true or false", int: "integer", float: "number", str: "text"}
_PLURAL = {"integer": "integers", "number": "numbers", "text": "texts"}
_ARTICLE = {"integer": "an integer", "number": "a number", "text": "a text"}


def describe(annotation: Any) -> str:
    """Describe a type in words, such as ``number``, ``'exact' or 'published'``, or ``list of numbers``."""
    said = []
    for member in _members(annotation):
        if member is type(None):
            continue
        if member in _PLAIN:
            said.append(_PLAIN[member])
        elif typing.get_origin(member) is Literal:
            said += [repr(choice) for choice in typing.get_args(member)]
        elif member is tuple or typing.get_origin(member) in (tuple, list):
            inner = [describe(a) for a in typing.get_args(member) if a is not Ellipsis]
            said.append(f"list of {_PLURAL.get(inner[0], inner[0])}" if inner else "list")
        else:
            said.append("value (from Python only)")
    return " or ".join(dict.fromkeys(said)) or "nothing"


def coerce(name: str, value: Any, annotation: Any) -> Any:
    """Convert the value of an option to the annotated type. The value can be text or come from TOML or
    Python.

    Raises ``ValueError`` if this is impossible. The message states the option, the value and the allowed
    values.
    """
    for member in sorted(_members(annotation), key=_specificity):
        matched, converted = _as_member(name, value, member)
        if matched:
            return converted
    allowed = re.sub(r"\b(integer|number|text)\b", lambda word: _ARTICLE[word[0]], describe(annotation))
    raise ValueError(f"{name} = {checks.said(value)}: must be {re.sub(r'^list', 'a list', allowed)}")


def _specificity(member: Any) -> int:
    """Return the sort key that determines when an alternative of a union is tried.

    ``str`` and ``Any`` are tried last, because ``str`` accepts every string and ``Any`` every value.
    """
    order = {type(None): 0, bool: 1, int: 2, float: 3, str: 6, Any: 7}
    if typing.get_origin(member) is Literal:
        return 0
    return order.get(member, 5) if not typing.get_origin(member) else 4


def _as_member(name: str, value: Any, member: Any) -> tuple[bool, Any]:
    text = value.strip() if isinstance(value, str) else None
    if member is type(None):
        return (value is None or (text is not None and text.lower() == "none")), None
    if typing.get_origin(member) is Literal:
        for choice in typing.get_args(member):
            if (value == choice and type(value) is type(choice)) or (
                text is not None and text == str(choice)
            ):
                return True, choice
        return False, None
    if member is bool:
        words = {"true": True, "yes": True, "false": False, "no": False}
        found = value if isinstance(value, bool) else words.get((text or "").lower())
        return found is not None, found
    if member in (int, float):
        return _as_number(value, text, member)
    if member is str:
        return text is not None, value
    if member is tuple or typing.get_origin(member) in (tuple, list):
        return _as_tuple(name, value, text, member)
    return text is None, value  # a value of another Python type is accepted unchanged, but a text is not


def _as_number(value: Any, text: str | None, member: type) -> tuple[bool, Any]:
    if isinstance(value, bool):
        return False, None
    if text is not None:
        try:
            return True, member(text)
        except ValueError:
            return False, None
    return isinstance(value, int if member is int else (int, float)), member(value) if isinstance(
        value, (int, float)
    ) else None


def _as_tuple(name: str, value: Any, text: str | None, member: Any) -> tuple[bool, Any]:
    parts = [p for p in text.strip("()[]").split(",") if p.strip()] if text is not None else value
    if not isinstance(parts, (list, tuple)):
        return False, None
    inner = [a for a in typing.get_args(member) if a is not Ellipsis] or [Any]
    if len(inner) == 1 or Ellipsis in typing.get_args(member):
        inner = inner[:1] * len(parts)
    if len(inner) != len(parts):
        raise ValueError(f"{name} = {value!r}: must have {len(inner)} entries")
    return True, tuple(
        coerce(f"{name}[{i}]", p, a) for i, (p, a) in enumerate(zip(parts, inner, strict=True))
    )


def list_options(options: Iterable[OptionSpec]) -> str:
    """Return a string that lists the options with their types, except options in ``BY_FLAG``."""
    return ", ".join(str(option) for option in options if option.name not in BY_FLAG) or "none"


def typed(found: RegistryEntry, options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Convert options to the types in the annotations of an entry's factory.

    Raises ``ValueError`` for unknown options.

    - prefix : text before the name of an option in error messages.
    """
    takes = options_of(found.factory())
    unknown = [name for name in options if name not in takes]
    if unknown:
        free = [
            option for name, option in takes.items() if name not in found.fixed or found.kind == "learner"
        ]
        raise ValueError(f"option {unknown[0]!r}: unknown to {found.name}, which takes {list_options(free)}")
    return {name: coerce(f"{prefix}{name}", value, takes[name].annotation) for name, value in options.items()}


def build(kind: Kind, name: str, preset: str | None = None, options: Mapping[str, Any] | None = None) -> Any:
    """Build a learner, a privatizer or an environment.

    Parameters
    ----------
    kind, name : kind and name of an entry of the registry (see :func:`entries`).
    preset : name of predefined option values of the class. Values in ``options`` take precedence.
    options : values of options by name, as text or as Python values.

    Raises
    ------
    ValueError
        If a name, preset or option is unknown, if an option has a wrong type, or if the class rejects it.
    """
    found = entry(kind, name)
    factory = found.factory()
    given = {**found.fixed, **typed(found, options or {})}
    if preset is not None:
        offered = presets_of(factory, {**found.fixed, **given})
        if preset not in offered:
            raise ValueError(f"preset = {preset!r}: {kind} {name!r}: {must_be_one_of(offered)}")
        given["preset"] = preset
    missing = [o for o in options_of(factory).values() if o.required and o.name not in given]
    if missing:
        raise ValueError(f"{missing[0].name} is missing: {kind} {name!r} needs {_list_or_flag(missing)}")
    try:
        made = factory(**given)
    except ImportError as error:  # an optional dependency is not installed
        raise ValueError(f"{kind} {name!r} cannot be built: {error}") from error
    if kind == "environment":
        own = {name: value for name, value in given.items() if name not in found.fixed}
        with suppress(TypeError):  # raised for objects that do not support weak references
            remember(made, RegisteredPart(name, options=own, plugins=_plugins(found)))
    return made


def _list_or_flag(missing: Iterable[OptionSpec]) -> str:
    return ", ".join(str(option) for option in missing)


def _plugins(found: RegistryEntry) -> tuple[str, ...]:
    return () if found.plugin is None else (found.plugin,)


@dataclass(frozen=True)
class RegisteredPart:
    """Name, preset and options with which the registry builds a part of a run.

    Parameters
    ----------
    name : name in the registry.
    preset : name of the preset; None for the default preset.
    options : options whose values differ from those in the preset.
    fixed : options that the name implies.
    plugins : modules that register the name.
    presets : names of all presets of the part.
    """

    name: str
    preset: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()


_environments: WeakKeyDictionary[Any, RegisteredPart] = WeakKeyDictionary()


def remember(mdp: TabularMDP, made_as: RegisteredPart) -> None:
    """Store the name and options from which an environment was built, until the environment is deleted."""
    _environments[mdp] = made_as


def remembered(mdp: TabularMDP) -> RegisteredPart | None:
    """Return the name and options from which an environment was built; None without a name."""
    try:
        return _environments.get(mdp)
    except TypeError:  # the object does not support weak references
        return None


def named(kind: str, value: Any) -> RegisteredPart | None:
    """Return the name, preset and options from which the registry builds an object equal to ``value``.

    ``value`` is a learner or a privatizer. Returns None if no registered name builds an equal object.
    """
    for found in (*_BUILT_IN.values(), *_added.values()):
        if found.kind == kind and _is_of(found, value) and found.plugin != "__main__":
            factory = found.factory()
            takes = [name for name, option in options_of(factory).items() if hasattr(value, name)]
            current = {name: getattr(value, name) for name in takes}
            if all(current.get(name, fixed) == fixed for name, fixed in found.fixed.items()):
                preset = str(current.pop("preset", "default"))
                given = _fewest(found, None if preset == "default" else preset, current, value)
                if given is not None:
                    return given
    return None


def _is_of(found: RegistryEntry, value: Any) -> bool:
    """Return True if ``value`` is an object of the class that the entry builds.

    The function compares dotted paths, so that no module is imported.
    """
    if isinstance(found.target, str):
        return found.target == f"{type(value).__module__}:{type(value).__qualname__}"
    return found.target is type(value)


def _fewest(
    found: RegistryEntry, preset: str | None, current: Mapping[str, Any], value: Any
) -> RegisteredPart | None:
    """Return the name, preset and fewest options from which an object equal to ``value`` is built.

    Options that the preset already sets to the same value are omitted. Returns None if no equal object can be
    built from options that a file can contain.
    """
    kind, factory = found.kind, found.factory()
    every = {name: v for name, v in current.items() if v is not None and name not in found.fixed}
    takes = options_of(factory)
    required = {name: v for name, v in every.items() if takes[name].required or name in BY_FLAG}
    tries: list[dict[str, Any]] = []
    with suppress(ValueError, TypeError):
        plain = build(kind, found.name, preset, required)
        tries.append({n: v for n, v in every.items() if n in required or getattr(plain, n) != v})
    for options in (*tries, every):
        with suppress(ValueError, TypeError):
            # this call raises ValueError for values that a file cannot contain
            flat_options("options", options)
            if build(kind, found.name, preset, options) == value:
                offered = presets_of(factory, found.fixed)
                fixed = {k: v for k, v in found.fixed.items() if getattr(factory, k, None) != v}
                return RegisteredPart(found.name, preset, options, fixed, _plugins(found), offered)
    return None


def presets_of(factory: Callable[..., Any], fixed: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return the names of the presets of a class.

    - fixed : options that the registered name implies.
    """
    return tuple(_preset_table(factory, fixed or {}))


def _preset_table(factory: Callable[..., Any], fixed: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    # the class UCBVI implements two learners, which have different presets
    bonus = str(fixed.get("bonus", "")).upper()
    plain: Mapping[str, Mapping[str, Any]] = getattr(factory, "PRESETS", {})
    table: Mapping[str, Mapping[str, Any]] = getattr(factory, f"{bonus}_PRESETS", plain)
    return table


def must_be_one_of(names: Iterable[str]) -> str:
    """Return the part of an error message that lists the allowed names."""
    return "must be one of " + ", ".join(map(repr, names)) if names else "no presets"


def make(name: str | gymnasium.Env[Any, Any], **options: Any) -> TabularMDP:
    """Build an environment: ``make("riverswim", rewards="bernoulli")``, ``make(env, horizon=50)``.

    name : a name in the output of ``discreet list``, ``"gym:ID"``, or a tabular Gymnasium environment
        (:func:`discreet.from_gymnasium` states the requirements).
    options : options that ``discreet options NAME`` lists. Unknown options raise ``ValueError`` with the list
        of known options.
    """
    if not isinstance(name, str):
        from discreet.envs import from_gymnasium

        return from_gymnasium(name, **options)
    environment: TabularMDP = build("environment", name, None, options)
    return environment


# ------------------------------------------------------------------------------------ mechanisms
def mechanisms(epsilon: float, delta: float) -> list[tuple[str, Any]]:
    """Return (label, privatizer) for every mechanism of the registered privatizers at this budget.

    The options ``release``, ``noise`` and ``tree_estimate``, or the option ``randomizer``, select a
    mechanism. The function tries all values of these options, and the preset ``paper``. It tries pure epsilon
    first. If the class rejects this, it tries ``delta``. Combinations that a class rejects are omitted.
    """
    found: dict[str, Any] = {}
    for one in entries("privatizer"):
        takes = options_of(one.factory())
        if "epsilon" not in takes:
            continue
        tables: list[dict[str, Any]] = [{}]
        chosen = ("randomizer",) if "randomizer" in takes else ("release", "noise")
        for name in chosen:
            values = [v for v in _choices(takes[name].annotation) if v != "auto"] if name in takes else []
            tables = [{**table, name: value} for table in tables for value in values] or tables
        if "release" in takes and "reports" in _choices(takes["release"].annotation):
            tables.append({"release": "reports"})  # privatizers with reports have no option for the noise
        if "tree_estimate" in takes:
            tables += [{**table, "tree_estimate": "optimal"} for table in tables]
        if "paper" in presets_of(one.factory(), one.fixed):
            tables.append({"preset": "paper"})
        for table in tables:
            words = [f"{name} {v}" if name == "tree_estimate" else str(v) for name, v in table.items()]
            label = " ".join([one.name, *words]).replace("_", " ")
            preset, options = table.get("preset"), {k: v for k, v in table.items() if k != "preset"}
            budgets: list[dict[str, float]] = [{}]
            if "delta" in takes and preset is None:
                budgets.append({"delta": delta})
            for budget in budgets:
                with suppress(ValueError):
                    given = {**options, "epsilon": epsilon, **budget}
                    found[label] = build("privatizer", one.name, preset, given)
                    if options:
                        break  # the mechanism supports pure epsilon, so it is not tried at delta
                    label += " at delta"
    return [*found.items()]


def _choices(annotation: Any) -> tuple[str, ...]:
    """Return the values of a ``Literal``, also if the ``Literal`` is a member of a union."""
    if typing.get_origin(annotation) is Literal:
        return tuple(str(value) for value in typing.get_args(annotation))
    return tuple(value for part in typing.get_args(annotation) for value in _choices(part))
