r"""Flower apps for sites and for the analyst. With SecAgg+, only the sum over sites is revealed.

:func:`flower_client` runs at a site, and :func:`flower_server` runs on the analyst's machine. Flower provides
messages, nodes and simulation (``pip install 'discreet[flower]'``). The protocol is Flower's SecAgg+ (Bell et
al. 2020, on the complete graph of sites). Pairs of sites agree on keys, and each site deals shares of its
secrets to all other sites. The masked vectors of the sites are summed. At the end, sites send the shares with
which the masks are removed. The code is Flower's, with the changes below. Each app therefore loads a separate
copy of two Flower modules, so the modules of the process do not change.

*Masks.* Flower (1.41) reduces a seed of 32 bytes to 32 bits, and expands these bits into a mask with a
Mersenne Twister. Any machine can try all 32-bit seeds in a few hours (Flower's GitHub issue 7522). Here a
mask is the key stream of ChaCha20, whose key is the SHA-256 of the seed (:func:`mask`). Every entry is
uniform modulo 2^40.

In SecAgg+, the server distributes the sites' public keys. A malicious server could replace these keys by its
own. Therefore all sites share 32 secret bytes, the key with which they counted their parts. Shares from one
site to another are encrypted. The encryption key depends on this secret, on the plan, and on all public keys
that the site received. A party without the secret can neither read nor create such shares. Two sites that
received different keys or plans cannot read each other's shares. In this case the round fails, and no sums
are sent.

*Checks of the server's messages at a site* (:func:`refusal`).

- Sizes and ranges agree with the site's plan.
- The server sends one pair of keys for each of the n sites, and each of the other sites has sent shares to
  this site.
- The server asks for the sums of the site only once in a run.
- At the end, the server names every site either as in the sum or as dropped out. At least k sites, including
  this site, are in the sum. The server asks for this stage only once. Flower can process two messages in
  parallel, so a file in the machine's temporary folder determines which message came first.

If a check fails, the site raises an error, and Flower sends the error instead of an answer. Flower's own
checks also apply.

*Attacks that remain possible.* A server can leave out up to n - k sites, and the statement accounts for this.
If a site sends wrong numbers, or numbers out of range, the sum is wrong. This cannot be prevented without
access to the numbers of that site. Sums that no set of users can produce are rejected.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

from discreet.core.releases import Ints
from discreet.core.rng import Randomness
from discreet.ledger.ledger import Ledger
from discreet.pipeline.federated import BOUND, MODULUS, FederatedSite, FederatedSum, FederationPlan
from discreet.pipeline.learn import learn
from discreet.pipeline.learned_files import LearnConfig
from discreet.utils.atomic_folder import check_free

_CLIENT = "flwr.client.mod.secure_aggregation.secaggplus_mod"
_SERVER = "flwr.server.workflow.secure_aggregation.secaggplus_workflow"
_RECORD = "discreet_sites"
_LOG = logging.getLogger(__name__)
_STAGES = ("setup", "share_keys", "collect_masked_vectors", "unmask")


class TaskRejected(ValueError):
    """Error raised at a site if the server deviates from the site's plan. The site then sends no answer.

    The text of the error contains no private data. It is sent to the server.
    """


def _flwr() -> None:
    if find_spec("flwr") is None:
        raise ValueError("flower: is not installed; pip install 'discreet[flower]'")


def _own(name: str, **replaced: Any) -> Any:
    """Return a copy of a Flower module in which the objects with the given names are replaced."""
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ValueError(f"flower: this version has no {name}; must be one of discreet[flower]")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for key, value in replaced.items():
        if not hasattr(module, key):
            raise ValueError(f"flower: {name} of this version has no {key}; must be one of discreet[flower]")
        setattr(module, key, value)
    return module


def mask(seed: bytes, modulus: int, shapes: Sequence[tuple[int, ...]]) -> list[Ints]:
    """Expand a seed into arrays of uniform integers in [0, modulus). The modulus must be a power of two.

    The integers are taken from the key stream of ChaCha20, 64 bits per entry. Its key is the SHA-256 of the
    seed. Each seed is used for only one mask.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    sizes = [int(np.prod(shape)) for shape in shapes]
    key = hashlib.sha256(b"discreet mask\0" + seed).digest()
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * sum(sizes)))
    words = (np.frombuffer(stream, "<u8") & np.uint64(modulus - 1)).astype(np.int64)
    parts = np.split(words, np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _ranges(plan: FederationPlan) -> dict[str, Any]:
    """Return the parameters of SecAgg+ for which integers are transmitted without error.

    The docstring of the module discreet.pipeline.federated has the proof.
    """
    return {
        "clipping_range": float(BOUND), "quantization_range": 2 * BOUND, "modulus_range": MODULUS,
        "max_weight": 1.0, "num_shares": 1.0, "reconstruction_threshold": plan.fewest / plan.sites,
    }  # fmt: skip


# ------------------------------------------------------------------------------ at a site


def refusal(
    plan: FederationPlan, stage: str, content: Mapping[str, Any], own: int, before: Mapping[str, Any]
) -> str | None:
    """Return the reason why a site refuses to answer a message of the server; None if the site answers.

    Parameters
    ----------
    plan : the site's own copy of the plan.
    stage : stage of SecAgg+ to which the message belongs.
    content : content of the message.
    own : number of this site.
    before : state of this site. ``stage`` is its last stage in this run, and ``nodes`` are the sites for
        which it received keys.
    """
    last, nodes = before.get("stage"), set(before.get("nodes", ()))
    if stage not in _STAGES:
        return f"stage {stage!r} is none of secure aggregation"
    if last in _STAGES[2:] and stage != "unmask":
        return "this site has sent its sums in this run, and does so once"
    if stage == "setup":
        wanted = {
            "sample_num": plan.sites, "share_num": plan.sites, "threshold": plan.fewest,
            "clipping_range": float(BOUND), "target_range": 2 * BOUND, "mod_range": MODULUS,
            "max_weight": 1.0,
        }  # fmt: skip
        for name, value in wanted.items():
            if content.get(name) != value:
                return f"{name} = {content.get(name)!r}: must be {value!r} by this site's plan"
        return None
    if last != _STAGES[_STAGES.index(stage) - 1]:
        return f"stage {stage!r} does not follow {last!r}"
    if stage == "share_keys":
        shown = {str(int(node)) for node in content}  # reject messages in which one site has two names
        if len(shown) != plan.sites or shown != set(content) or str(own) not in shown:
            return f"keys of {len(shown)} sites: must be of {plan.sites}, this one among them"
    elif stage == "collect_masked_vectors":
        sources = list(content.get("srcs", ()))
        if len(sources) != plan.sites - 1 or set(sources) != nodes - {own}:
            return f"shares of {len(sources)} sites: must be of all {plan.sites - 1} others"
    else:
        active, dead = list(content.get("active_nids", ())), list(content.get("dead_nids", ()))
        if sorted(active + dead) != sorted(nodes):
            return "sites in the sum and dropped ones: each site must be named once"
        if own not in active or len(active) < plan.fewest:
            return f"{len(active)} sites in the sum: must be {plan.fewest} at least, this one among them"
    return None


def _sealed(site: FederatedSite, keys: Sequence[tuple[str, bytes, bytes]]) -> dict[str, Any]:
    """Return a mapping of names to functions that replace Flower's encryption between sites.

    The encryption keys depend on the sites' secret, the plan and all public keys that the site received.

    - keys : number and two public keys of every site.
    """
    from flwr.common.secure_aggregation.crypto import symmetric_encryption as plain

    seen = hashlib.sha256(site.plan.digest.encode())
    for node, first, second in sorted(keys):
        for part in (node.encode(), first, second):
            seen.update(len(part).to_bytes(8, "little") + part)

    def bound(shared: bytes) -> bytes:
        inner = hmac.digest(site.key, seen.digest() + shared, "sha256")
        return base64.urlsafe_b64encode(inner)

    return {
        "encrypt": lambda key, text: plain.encrypt(bound(key), text),
        "decrypt": lambda key, text: plain.decrypt(bound(key), text),
    }


def _check_shares(flower: Any, state: Mapping[str, Any], content: Mapping[str, Any], own: int) -> None:
    """Raise :class:`TaskRejected` if shares that other sites dealt to this site cannot be decrypted.

    Flower checks this only after the ledger has been charged.

    Parameters
    ----------
    flower : copy of Flower's client module
    state : state that Flower stores for this site
    content : message that contains the shares
    own : number of this site
    """
    shared = flower.SecAggPlusState(**state).ss2_dict
    try:
        for source, text in zip(content["srcs"], content["ctxts"], strict=True):
            names = flower.share_keys_plaintext_separate(flower.decrypt(shared[source], text))[:2]
            if names != (source, own):
                raise ValueError(f"it is from {names[0]} to {names[1]}")
    except Exception:
        _LOG.exception("what another site has dealt to this one cannot be opened")
        raise TaskRejected(
            "secure aggregation: what another site has dealt to this one cannot be opened (it has another "
            "secret or plan, or saw other keys); nothing was charged here"
        ) from None


def _claim(stage: str, *keys: bytes) -> None:
    """Claim a stage of a round, so that parallel processes of this site answer the stage only once.

    Raises :class:`TaskRejected` if the stage is already claimed.

    - keys : public keys of this site, which identify the round.
    """
    name = hashlib.sha256(b"\0".join((stage.encode(), *keys))).hexdigest()[:32]
    path = Path(gettempdir()) / f"discreet-site-{name}"
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise TaskRejected(f"secure aggregation: another process has answered {stage!r}") from None


def _answer(site: Callable[[Any], FederatedSite], message: Any, context: Any, call_next: Any) -> Any:
    """Return the answer of a site to a message of the server.

    Raises :class:`TaskRejected` if the message deviates from the site's plan.
    """
    from flwr.app import ConfigRecord

    if message.metadata.message_type != "train":
        raise TaskRejected(f"message = {message.metadata.message_type!r}: must be of secure aggregation")
    here, records = site(context), context.state.config_records
    content = dict(message.content.config_records["secaggplus_configs"])
    stage = content.pop("stage", None)
    before = dict(records.get(_RECORD, {}))
    if before.get("run") != context.run_id:  # the stored state belongs to an earlier run
        before = {"run": context.run_id}
    own = message.metadata.dst_node_id
    if why := refusal(here.plan, stage, content, own, before):
        raise TaskRejected(f"secure aggregation: {why}")
    if stage == "share_keys":
        before["nodes"] = [int(node) for node in content]
        before["keys"] = [part for node in content for part in content[node]]
    before["stage"] = stage
    nodes, seen = before.get("nodes", []), before.get("keys", [])
    keys = [(str(node), seen[2 * i], seen[2 * i + 1]) for i, node in enumerate(nodes)]
    flower = _own(_CLIENT, pseudo_rand_gen=mask, **_sealed(here, keys))
    if stage == _STAGES[2]:
        _check_shares(flower, records[flower.RECORD_KEY_STATE], content, own)
    if stage in _STAGES[2:]:
        _claim(stage, *(key for node, *pair in keys if node == str(own) for key in pair))
    answer = flower.secaggplus_mod(message, context, call_next)
    records[_RECORD] = ConfigRecord(before)
    return answer


def flower_client(site: Callable[[Any], FederatedSite]) -> Any:
    """Return the Flower ClientApp of a site.

    Parameters
    ----------
    site : function
        Function that takes Flower's ``Context`` and returns this site. Settings that differ between sites
        belong in ``context.node_config``. The site must supply this function and everything that it reads,
        including the plan.

    Returns
    -------
    flwr.clientapp.ClientApp

    Raises
    ------
    ValueError
        If Flower is not installed (``pip install 'discreet[flower]'``). A running app also rejects plans that
        differ from the site's plan, and messages outside the secure aggregation of this plan.
    """
    _flwr()
    from flwr.client import NumPyClient
    from flwr.clientapp import ClientApp

    class Sending(NumPyClient):
        def __init__(self, here: FederatedSite) -> None:
            self.here = here

        def fit(self, parameters: Any, config: Any) -> Any:
            if config.get("plan") != self.here.plan.digest:
                raise TaskRejected("plan: the analyst's must be that of this site")
            return [self.here.send().astype(np.float64)], 1, {}

    def guard(message: Any, context: Any, call_next: Any) -> Any:
        try:
            return _answer(site, message, context, call_next)
        except TaskRejected:
            raise
        # The text of this error can contain private data, and Flower would send the text to the server.
        except Exception:
            _LOG.exception("this site does not answer")
            raise RuntimeError("this site does not answer: its own log says why") from None

    return ClientApp(client_fn=lambda context: Sending(site(context)).to_client(), mods=[guard])


# ------------------------------------------------------------------------------ at the analyst's


def _sum_strategy(plan: FederationPlan) -> Any:
    """Return a Flower strategy that asks every site once and stores the sum in its attribute ``found``."""
    from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server.strategy import Strategy

    class Sum(Strategy):
        found: FederatedSum | None = None

        def initialize_parameters(self, client_manager: Any) -> Any:
            return ndarrays_to_parameters([np.zeros(1)])

        def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
            everybody = client_manager.sample(plan.sites)
            if client_manager.num_available() > plan.sites:
                raise ValueError(f"sites: more than the plan's {plan.sites} are connected")
            return [(one, FitIns(parameters, {"plan": plan.digest})) for one in everybody]

        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            (mean,) = parameters_to_ndarrays(results[0][1].parameters)
            self.found = FederatedSum(plan, len(results), np.rint(mean * len(results)).astype(np.int64))
            return None, {}

        def configure_evaluate(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
            return []

        def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> Any:
            return None, {}

        def evaluate(self, server_round: int, parameters: Any) -> Any:
            return None

    return Sum()


def flower_server(
    plan: FederationPlan,
    out: str | Path,
    *,
    ledger: Ledger | None = None,
    settings: LearnConfig | None = None,
    randomness: Randomness | None = None,
    timeout: float | None = 3600.0,
) -> Any:
    """Return the Flower ServerApp of the analyst.

    The app waits for the sites of a plan, decrypts the sum over sites, and learns a policy from the sum.

    Parameters
    ----------
    plan : the plan that the sites agreed on
    out, ledger, settings, randomness : as for :func:`~discreet.pipeline.learn.learn`
        ``ledger`` is the analyst's ledger, in addition to the ledgers of the sites.
    timeout : number of seconds after which a site that has not answered counts as dropped out; None for no
        limit

    Returns
    -------
    flwr.serverapp.ServerApp

    Raises
    ------
    ValueError
        If Flower is not installed (``pip install 'discreet[flower]'``). Also raised in a running app, if more
        sites are connected than the plan has.
    RuntimeError
        Raised in a running app if no sum was decrypted, because too few sites answered all stages or a site
        refused to answer.
    """
    _flwr()
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.workflow import DefaultWorkflow
    from flwr.serverapp import ServerApp

    check_free(Path(out))
    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        check_free(Path(out))
        strategy = _sum_strategy(plan)
        legacy = LegacyContext(context, config=ServerConfig(num_rounds=1), strategy=strategy)
        secagg = _own(_SERVER, pseudo_rand_gen=mask).SecAggPlusWorkflow(timeout=timeout, **_ranges(plan))
        DefaultWorkflow(fit_workflow=secagg)(grid, legacy)
        if strategy.found is None:
            raise RuntimeError(
                f"no sum was opened: fewer than {plan.fewest} of {plan.sites} sites answered to the end, or "
                "one refused; their logs say why. A site that charged its ledger has spent that"
            )
        learn(
            strategy.found, plan.learner, out, privatizer=plan.privatizer, ledger=ledger,
            settings=settings, randomness=randomness,
        )  # fmt: skip

    return app
