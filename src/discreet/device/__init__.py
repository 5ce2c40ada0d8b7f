"""What runs on a person's own device: it sees raw data, and imports NumPy and the standard library only.

Every message is an :mod:`~discreet.device.message_envelope` around a payload, made for a public form
(:mod:`~discreet.device.session_config`), and every device says what its message gives away
(:mod:`~discreet.device.message_guarantee`):

- :mod:`~discreet.device.count_device`: noisy counters of a trajectory (local privacy);
- :mod:`~discreet.device.randomized_response_device`: randomized reports of a few random steps (local privacy,
  or a shuffler's);
- :mod:`~discreet.device.shuffle_encoder`, :mod:`~discreet.device.shuffle_payload`: bits and coin flips (a
  shuffler's);
- :mod:`~discreet.device.linear_device`: noisy sums of features (local privacy), with
  :mod:`~discreet.device.linear_planning` to
  plan from a public solution, and :mod:`~discreet.device.linear_sensitivity`, the formulas of what they cost.

:mod:`~discreet.device.discrete_noise` draws exact noise, :mod:`~discreet.device.integer_encoding` writes
vectors of integers. Servers and simulations encode by the same code, with coins of their own.
"""

from discreet import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
