"""From a release to a model: projection, private model and its slacks. Post-processing only."""
