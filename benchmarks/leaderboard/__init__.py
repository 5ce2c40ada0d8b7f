"""The leaderboard of private reinforcement learning: frozen tasks and submissions that can be checked."""
