"""Write a log of simulated decisions with known probabilities, and its schema."""

from pathlib import Path

import numpy as np
import pandas as pd

SCHEMA = """dataset = "clicks"
unit = "impression"
horizon = 1
actions = 3
reward = { low = 0, high = 1 }
[context]
propensity = "chance"
[context.columns]
score = { range = [-1, 1] }
"""

random = np.random.default_rng(0)
x, chance = random.uniform(-1, 1, 20_000), np.array([0.2, 0.3, 0.5])
action = random.choice(3, 20_000, p=chance)
fits = action == (x > 0)
log = {"score": x, "action": action, "chance": chance[action], "planned": 1.0 * fits}
log["reward"] = 1.0 * (random.random(20_000) < 0.3 + 0.2 * fits)
pd.DataFrame(log).to_parquet("clicks.parquet")
Path("clicks.toml").write_text(SCHEMA)
