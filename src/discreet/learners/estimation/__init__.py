"""Model estimation from a release: projection, private model and its slacks. Post-processing only."""
