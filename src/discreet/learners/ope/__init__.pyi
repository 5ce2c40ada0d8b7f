"""Off-policy evaluation."""

from discreet.learners.ope.count_estimates import PolicyEstimate as PolicyEstimate
from discreet.learners.ope.count_estimates import evaluate as evaluate
from discreet.learners.ope.policy_gains import PolicyGains as PolicyGains
from discreet.learners.ope.policy_gains import evaluate_policies as evaluate_policies
from discreet.learners.ope.session_release import SessionRelease as SessionRelease
from discreet.learners.ope.study_inference import StudyInference as StudyInference

__all__: list[str]
