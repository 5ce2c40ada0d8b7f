"""Pipeline from a data file to policy, report and privacy statement, and its verification (``verify``)."""
