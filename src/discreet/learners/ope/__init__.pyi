"""Off-policy evaluation."""

from discreet.learners.ope.count_estimates import PolicyEstimate as PolicyEstimate
from discreet.learners.ope.count_estimates import evaluate as evaluate
from discreet.learners.ope.policy_gains import evaluate_policies as evaluate_policies

__all__: list[str]
