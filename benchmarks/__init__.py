"""Measurements: scripts, studies, the leaderboard, results (``*.md``). Not in the distribution."""
