"""From a file of people to policy, report and statement, and back: ``verify``."""
