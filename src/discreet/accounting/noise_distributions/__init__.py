"""Laws of noise for whoever reads a release: functions of public numbers.

A wrong one misleads a learner and reveals nobody.
"""
