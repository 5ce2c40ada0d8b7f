"""The world: tabular MDPs, trajectories, exact planning, batch flow."""
