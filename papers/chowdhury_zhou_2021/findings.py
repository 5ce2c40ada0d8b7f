"""What is found in the public code of Chowdhury and Zhou (2021), each shown on the code itself.

The agents of that code plan from noisy counts: ``compute_estModelBonus`` adds noise to the statistics and
returns estimates and bonuses. Here that method is listened to while the code's own loop runs on its own
world. From what it returns the noisy counts are computed back (both are functions of them), and from these
what the method adds no noise to.

The paper's route to privacy is its Lemmas 5.1 and 5.4: the noisy counts are differentially private, and all
that follows is post-processing. What is shown below contradicts the premise for the code's noise.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.public_code import Finding, Load, PublicCode, Seen

Floats = NDArray[np.float64]

_AGENT, _WORLD, _LOOP = "src/agent.py", "src/environment.py", "src/experiment.py"
_SCALING = 2 * math.log(3)  # the code's `scaling`
_USERS, _LATE_USERS, _EPSILON = 300, 2000, 1.0


# ------------------------------------------------------------------- what the code's planner is given
@dataclass(frozen=True)
class Played:
    """A run of the code: noisy counts at each episode, and what was true then.

    successors (n, S, A, S), visits and rewarded (n, S, A): noisy, of episode 1, 2, ...; where the code cuts a
    count at 1 it is nan; true_successors (n + 1, S, A, S) and ends (n + 1, S, A): exact, before episode
    1, 2, ... and after the last one; ends : of users whose last step was at the pair.
    """

    successors: Floats
    visits: Floats
    rewarded: Floats
    true_successors: Floats
    ends: Floats


def _denominator(bonus: float, twice: float) -> float:
    """D of bonus = √(scaling / D) + twice / D."""
    root = math.sqrt(_SCALING)
    x = bonus / root if twice == 0 else (math.sqrt(_SCALING + 4 * twice * bonus) - root) / (2 * twice)
    return 1.0 / x**2


def play(load: Load, name: str, users: int, seed: int) -> Played:
    """The agent of this name for so many users, by the code's own loop on its own RiverSwim, ε = 1."""
    agents, worlds, loop = load(_AGENT), load(_WORLD), load(_LOOP)
    world = worlds.make_riverSwim()
    states, actions = world.nState, world.nAction
    np.random.seed(seed)  # noqa: NPY002  (the code draws from NumPy's global generator)
    agent = getattr(agents, name)(states, actions, world.epLen, users, privEps=_EPSILON)
    joint = name.endswith("JDP")
    shape = (states, actions)
    successors, visits, rewarded, truth, ends = [], [], [], [], [np.zeros(shape)]
    estimate: Callable[[int], Any] = agent.compute_estModelBonus
    observe: Callable[..., None] = agent.update_obs

    def listening(ep: int) -> Any:
        returned = estimate(ep)
        _, model, reward_bonus, model_bonus = returned
        terms = int(np.floor(np.log(ep))) + 1 if joint else ep
        error = math.sqrt(terms) / _EPSILON
        seen, pairs, paid = np.empty((*shape, states)), np.empty(shape), np.empty(shape)
        for pair in np.ndindex(*shape):
            below = _denominator(float(model_bonus[pair]), states * error if joint else 0.0)
            below_reward = _denominator(float(reward_bonus[pair]), states * error)
            seen[pair] = np.asarray(model[pair]) * below
            pairs[pair] = below - error if below > 1 + 1e-9 else math.nan
            paid[pair] = below_reward - error if below_reward > 1 + 1e-9 else math.nan
        successors.append(seen)
        visits.append(pairs)
        rewarded.append(paid)
        truth.append(np.array([[agent.P_stats[s, a] for a in range(actions)] for s in range(states)], float))
        return returned

    def watching(state: int, action: int, reward: float, after: int, going_on: int, h: int) -> None:
        observe(state, action, reward, after, going_on, h)
        if not going_on:
            last = ends[-1].copy()
            last[state, action] += 1
            ends.append(last)

    agent.compute_estModelBonus, agent.update_obs = listening, watching
    with contextlib.redirect_stdout(io.StringIO()):
        loop.run_experiment(agent, world, users)
    truth.append(np.array([[agent.P_stats[s, a] for a in range(actions)] for s in range(states)], float))
    return Played(np.array(successors), np.array(visits), np.array(rewarded), np.array(truth), np.array(ends))


# ------------------------------------------------------------------------------------ demonstrations
def one_noise_for_all_pairs(load: Load) -> Seen:
    """Local: each user's transitions, read off what the server computes with."""
    run = play(load, "UCBVI_LDP", _USERS, 1)
    change = np.diff(run.successors, axis=0)  # of one user: her counts and her noise
    read = np.rint(change - change.min(axis=(1, 2), keepdims=True))
    true = np.diff(run.true_successors[:_USERS], axis=0)
    right = int((read == true).all(axis=(1, 2, 3)).sum())
    size = float(np.std(change - true))
    return Seen(
        right == len(true),
        f"all {true[0].size} transition counts of {right} of {len(true)} users are read off exactly, "
        f"although a "
        f"user's noise has standard deviation {size:.2f}: it is the same for every pair, and cancels in "
        f"differences",
    )


def drawn_anew_each_time(load: Load) -> Seen:
    """Joint: one user's transitions, from the mean of what is released after her; all others are known."""
    run = play(load, "UCBVI_JDP", _LATE_USERS, 2)
    true = run.true_successors[1] - run.true_successors[0]  # of user 1
    others = run.true_successors[1:_LATE_USERS] - true
    late = run.successors[1:] - others
    once = np.rint(late[0])
    read = np.rint(late.mean(axis=0))
    right = int((read == true).sum())
    error = float((late - true).std() / math.sqrt(len(late)))
    return Seen(
        right == true.size,
        f"{right} of the {true.size} transition counts of user 1 are read off exactly from the mean of "
        f"{len(late)} later releases (standard error {error:.3f}; from the first of them alone "
        f"{int((once == true).sum())} are right): the same sums with new noise each time",
    )


def one_noise_for_two_counts(load: Load) -> Seen:
    """Joint: at how many users' last step a pair was, from a single release."""
    run = play(load, "UCBVI_JDP", _USERS, 3)
    states = run.successors.shape[1]
    read = (run.rewarded - run.visits)[-1] + states - 1  # the code's imagined visits: 1 and S
    true = run.ends[_USERS - 1]
    there = np.isfinite(read)
    away = float(np.abs(read - true)[there].max()) if there.any() else math.inf
    return Seen(
        bool(there.any()) and away < 1e-3,
        f"of the last release alone, the number of users whose last step was at a pair is read off for "
        f"{int(there.sum())} of {there.size} pairs, at most {away:.1e} away from the truth ("
        f"{int(true[there].sum())} users in all)",
    )


def scale(load: Load) -> Seen:
    """Local: the scale of the noise that the agent draws, against the paper's."""
    agents, world = load(_AGENT), load(_WORLD).make_riverSwim()
    np.random.seed(4)  # noqa: NPY002
    agent = agents.UCBVI_LDP(world.nState, world.nAction, world.epLen, 20_000, privEps=_EPSILON)
    drawn = np.concatenate([np.ravel(agent.noiseN), np.ravel(agent.noiseR), np.ravel(agent.noiseP)])
    found, stated = float(np.abs(drawn).mean()), 3 * world.epLen / _EPSILON
    return Seen(
        abs(found * _EPSILON - 1) < 0.05,
        f"mean absolute value of {drawn.size:,} draws at ε = 1: {found:.3f}, the scale of a Laplace law; "
        f"the paper's Lemma 5.4 has 3 H / ε = {stated:g}",
    )


CODE = PublicCode(
    name="chowdhury-zhou-2021",
    repository="https://github.com/XingyuZhou989/PrivateTabularRL",
    commit="f4d8a66184d2f022b6a37cef62578075d5464922",
    paper="Chowdhury and Zhou, Differentially Private Regret Minimization in Episodic Markov Decision "
    "Processes (AAAI 2022, arXiv 2112.10599), whose section 6 names the code",
    files={
        _AGENT: "8502516205da0c8872b10d3d291a74d32a3eb57b",
        _WORLD: "89e5078131a020bd134afd7eeec55d3ced78cd0a",
        _LOOP: "135db6ac3b9c7782396be2b80e3455a2beb83fd2",
    },
    findings=(
        Finding(
            "one noise for all pairs (local)", _AGENT, 215,
            (
                "self.noiseN = np.random.laplace(0,1./self.privEps,nEps)",
                "self.noiseR = np.random.laplace(0,1./self.privEps,nEps)",
                "self.noiseP = np.random.laplace(0,1./self.privEps,(nEps,self.nState))",
            ),
            "A number an episode (a vector over successors), added to the counts of every pair at lines "
            "235, 238 "
            "and 248. Differences of two pairs' counts carry no noise: no ε follows, at any scale.",
            one_noise_for_all_pairs,
        ),
        Finding(
            "noise drawn again on cumulative counts (joint)", _AGENT, 285,
            (
                "n1 = np.random.laplace(0,1./self.privEps,K)",
                "n2 = np.random.laplace(0,1./self.privEps,(K,self.nState))",
                "n3 = np.random.laplace(0,1./self.privEps,K)",
            ),
            "Called for every episode on sums over all users so far, so that each user's data are released "
            "once an "
            "episode with independent noise: the loss adds up over episodes, and means remove the noise. "
            "The binary "
            "mechanism of the paper keeps a node's noise. The comment above these lines says that the "
            "noise is "
            "fresh 'to mimic the tree-based algorithm'.",
            drawn_anew_each_time,
        ),
        Finding(
            "one noise for two counts of a pair (joint and local)", _AGENT, 293,
            (
                "denom = np.maximum(1.0, counts + n1.sum() + eDelta)",
            ),
            "The same n1 is added at line 301 to the pair's count of rewards. The two counts differ by the "
            "visits "
            "that were a user's last, so that their difference releases these without noise.",
            one_noise_for_two_counts,
        ),
        Finding(
            "scale 1 / ε (joint and local)", _AGENT, 215,
            ("self.noiseN = np.random.laplace(0,1./self.privEps,nEps)",),
            "Without the factors 3 (families of counts), H (steps) and, for JDP at line 285, log K of the "
            "paper's "
            "Lemmas 5.1 and 5.4. Even if every counter had noise of its own, once, the visits alone would "
            "cost "
            "2 (H - 1) ε = 38 ε at H = 20 when one user's trajectory is replaced.",
            scale,
        ),
    ),
    no_faults=(
        "The world, the regret and the protocol are those of the paper's section 6; our replica of the "
        "script "
        "agrees with its means.",
        "A user's noise in local mode is drawn once and kept, as it must be.",
        "The number of terms in joint mode grows as log K, like the noise of a tree; the code calls it a "
        "mimicry.",
        "The theorems do not rest on the script: a fault of the script is none of the paper's proofs.",
        "The README calls the code 'Simple private tabular reinforcement learning for the AAAI 2022 paper' "
        "and "
        "offers it for no use on people's data.",
    ),
    not_shown="Joint privacy protects what other users see, the actions, and the paper proves it by way of "
    "private counts. Shown here is that the code's counts are not private, so that the proof does not "
    "apply to it; "
    "whether "
    "actions alone, of so many users, give somebody away is not examined.",
)  # fmt: skip
