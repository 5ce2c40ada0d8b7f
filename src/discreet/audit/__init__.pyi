"""Attacks on privatizers and learners, and checks of plug-ins."""

from discreet.audit.conformance import check_plugin as check_plugin
from discreet.audit.conformance import plugin_cases as plugin_cases
from discreet.audit.declared import DeclaredChecks as DeclaredChecks
from discreet.audit.declared import check_noise as check_noise
from discreet.audit.declared import check_vector as check_vector
from discreet.audit.membership_inference import membership_attack as membership_attack
from discreet.audit.run import Audit as Audit
from discreet.audit.run import audit_privatizer as audit_privatizer

__all__: list[str]
