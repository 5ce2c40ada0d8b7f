"""Off-policy evaluation."""

from discreet.learners.ope.count_estimates import PolicyEstimate as PolicyEstimate
from discreet.learners.ope.count_estimates import evaluate as evaluate

__all__: list[str]
