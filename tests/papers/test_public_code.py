"""What is said of public code is shown on it, not on code without the fault; other versions are told.

The code here is a stand-in of our own with the same interface: shared and redrawn noise, or as it should be.
"""

import textwrap
from pathlib import Path

import pytest

from papers import public_code
from papers.chowdhury_zhou_2021 import findings

WORLD = """
class World:
    nState, nAction, epLen = 3, 2, 5

def make_riverSwim():
    return World()
"""
LOOP = """
import numpy as np

def run_experiment(agent, env, n):
    for ep in range(1, n + 1):
        agent.compute_estModelBonus(ep)
        state = 0
        for h in range(env.epLen):
            action, after = np.random.randint(env.nAction), np.random.randint(env.nState)
            agent.update_obs(state, action, 0.5, after, int(h < env.epLen - 1), h)
            state = after
"""
AGENT = """
import numpy as np

FAULTY = {faulty}
SCALING = 2 * np.log(3)

class Agent:
    def __init__(self, S, A, H, n, privEps):
        self.S, self.A, self.scale = S, A, 1 / privEps if FAULTY else 3 * H / privEps
        self.P_stats = {{(s, a): np.ones(S) for s in range(S) for a in range(A)}}
        self.R_stats = {{pair: (1.0, 1) for pair in self.P_stats}}
        self.begin(n)

    def update_obs(self, state, action, reward, after, going_on, h):
        mean, count = self.R_stats[state, action]
        self.R_stats[state, action] = ((mean * count + reward) / (count + 1), count + 1)
        if going_on:
            self.P_stats[state, action][after] += 1

    def compute_estModelBonus(self, ep):
        estimates = ({{}}, {{}}, {{}}, {{}})
        for pair in self.P_stats:
            visits, paid, successors = self.noise(ep, pair)
            E, S = np.sqrt(self.terms(ep)), self.S
            below = max(1.0, self.P_stats[pair].sum() + visits + E)
            below_paid = max(1.0, self.R_stats[pair][1] + paid + E)
            estimates[0][pair] = 0.0
            estimates[1][pair] = (self.P_stats[pair] + successors) / below
            estimates[2][pair] = np.sqrt(SCALING / below_paid) + S * E / below_paid
            estimates[3][pair] = np.sqrt(SCALING / below) + self.model_error(E) / below
        return estimates

class UCBVI_LDP(Agent):
    def begin(self, n):
        shape = () if FAULTY else (self.S, self.A)
        self.noiseN = np.random.laplace(0, self.scale, (n, *shape))
        self.noiseR = np.random.laplace(0, self.scale, (n, *shape))
        self.noiseP = np.random.laplace(0, self.scale, (n, *shape, self.S))

    def noise(self, ep, pair):
        sums = [noise[:ep].sum(axis=0) for noise in (self.noiseN, self.noiseR, self.noiseP)]
        return (sums[0], sums[0], sums[2]) if FAULTY else tuple(one[pair] for one in sums)

    def terms(self, ep):
        return ep

    def model_error(self, E):
        return 0.0

class UCBVI_JDP(Agent):
    def begin(self, n):
        self.drawn = {{pair: np.random.laplace(0, self.scale, self.S + 2) for pair in self.P_stats}}

    def noise(self, ep, pair):
        if not FAULTY:
            return self.drawn[pair][0], self.drawn[pair][1], self.drawn[pair][2:]
        draws = np.random.laplace(0, self.scale, (self.terms(ep), self.S + 1)).sum(axis=0)
        return draws[0], draws[0], draws[1:]

    def terms(self, ep):
        return int(np.floor(np.log(ep))) + 1

    def model_error(self, E):
        return self.S * E
"""


def checkout(folder: Path, faulty: bool) -> Path:
    (folder / "src").mkdir()
    texts = {"agent": AGENT.format(faulty=faulty), "environment": WORLD, "experiment": LOOP}
    for name, text in texts.items():
        (folder / "src" / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


@pytest.fixture(autouse=True)
def few_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "_USERS", 40)
    monkeypatch.setattr(findings, "_LATE_USERS", 600)


@pytest.mark.parametrize("faulty", [True, False])
def test_shared_and_redrawn_noise_is_shown_and_noise_as_it_should_be_is_not(
    tmp_path: Path, faulty: bool
) -> None:
    found = public_code.examine(findings.CODE, checkout(tmp_path, faulty))
    assert [seen.shown for _, _, seen in found] == [faulty] * 4, [seen.numbers for _, _, seen in found]
    assert all(line is None for _, line, _ in found)  # the quoted lines are not the stand-in's


def test_another_version_is_told_with_the_place_of_the_quoted_lines(tmp_path: Path) -> None:
    folder = checkout(tmp_path, True)
    agent = folder / "src" / "agent.py"
    agent.write_text(agent.read_text() + "\n".join(f"#{line}" for line in findings.CODE.findings[0].quote))
    assert public_code.lines_of(b"a\n  b = 1\n\tc\n", ["b = 1", "c"]) == 2
    words, everything = public_code.report(findings.CODE, folder)
    assert everything
    assert f"another version: {public_code.blob_id(agent.read_bytes())[:12]}, not 8502516205da" in words
    assert "lines 215 to 217 of that commit, which are not in this file" in words
    agent.write_text("raise KeyError(5)")
    with pytest.raises(ValueError, match="cannot be imported"):
        public_code._loader(folder)("src/agent.py")
    words, everything = public_code.report(findings.CODE, folder)
    assert not everything
    assert words.count("the demonstration does not run on this version") == 4


def test_a_folder_without_the_code_and_an_unknown_code_are_refused(tmp_path: Path) -> None:
    assert public_code.blob_id(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    with pytest.raises(ValueError, match=r"src/agent.py, .* not found; must be a checkout of https://github"):
        public_code.report(findings.CODE, tmp_path)
    with pytest.raises(ValueError, match="must be a folder"):
        public_code.report(findings.CODE, tmp_path / "none")
    with pytest.raises(ValueError, match="code = 'x': must be one of chowdhury-zhou-2021"):
        public_code.known("x")
    assert public_code.known("chowdhury-zhou-2021") is findings.CODE
