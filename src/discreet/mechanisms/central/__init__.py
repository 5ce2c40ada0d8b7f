"""Sessions of a trusted server that a plain stream of counts does not need.

They release returns of groups, clipped rewards, and rows on their own schedules.
"""
