"""Off-policy evaluation from releases: values, gains, tests of the assumptions, and verdicts."""
