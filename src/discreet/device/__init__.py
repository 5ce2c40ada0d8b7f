"""What runs on a person's own device: it sees raw data, and imports NumPy and the standard library only.

Every message is an :mod:`~discreet.device.envelope` around a payload, made for a public form
(:mod:`~discreet.device.forms`), and every device says what its message gives away
(:mod:`~discreet.device.guarantee`):

- :mod:`~discreet.device.counts`: noisy counters of a trajectory (local privacy);
- :mod:`~discreet.device.reports`: randomized reports of a few random steps (local privacy, or a shuffler's);
- :mod:`~discreet.device.encoders`, :mod:`~discreet.device.messages`: bits and coin flips (a shuffler's);
- :mod:`~discreet.device.linear`: noisy sums of features (local privacy), with
  :mod:`~discreet.device.planning` to
  plan from a public solution, and :mod:`~discreet.device.lemmas`, the formulas of what they cost.

:mod:`~discreet.device.noise` draws exact noise, :mod:`~discreet.device.blocks` writes vectors of integers.
Servers and simulations encode by the same code, with coins of their own.
"""
