"""Policies, reports and statements."""

from discreet.reports.policy_files import PolicyTable as PolicyTable
from discreet.reports.policy_files import read_policy as read_policy
from discreet.reports.policy_files import write_policy as write_policy
from discreet.reports.policy_report import make_report as make_report
from discreet.reports.statement import Statement as Statement

__all__: list[str]
