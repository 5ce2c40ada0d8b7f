"""From a mechanism to its session, and the uses of the kernel's sessions that a plain stream has no need of.

Group returns, cut rewards, clocks of rows, batches with questions of their own, people who are stored and
asked once, and what goes into a file and out of it.
"""
