"""Documents about a release: policy report, privacy statement, report for a data protection officer."""
