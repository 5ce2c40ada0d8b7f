"""Write simulated stays with real-valued vital signs, and their schema."""

from pathlib import Path

import numpy as np
import pandas as pd

import discreet as dr

SCHEMA = """dataset = "icu"
unit = "patient"
horizon = 12
actions = 3
reward = { low = 0, high = 1 }
return_bound = 1
[context.columns]
"""

stays = dr.envs.VitalsWorld(vitals=6, skill=0.0, seed=1).play(5000, seed=2)
last = np.append(np.diff(stays.stay) > 0, True)
rows = {
    "user": stays.stay,
    "episode": 0,
    "step": stays.step,
    "action": stays.actions,
    "reward": np.where(last, stays.returns[stays.stay], 0.0),
}
rows |= {f"vital {i}": stays.vitals[:, i] for i in range(6)}
pd.DataFrame(rows).to_parquet("vitals.parquet")
ranges = "".join(f'"vital {i}" = {{ range = [-4, 4] }}\n' for i in range(6))
Path("vitals.toml").write_text(SCHEMA + ranges)
