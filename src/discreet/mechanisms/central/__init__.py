"""Sessions of a trusted server for special streams of counts.

The sessions release group returns, clipped rewards, and rows with separate schedules.
"""
