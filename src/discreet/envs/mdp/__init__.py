"""MDPs: tabular MDPs, trajectories, exact planning, batch flow."""
