"""What runs on a person's own device: it sees raw data, and imports NumPy and the standard library only.

:mod:`discreet.device.encoders` turns a trajectory into one message of the shuffle protocol,
:mod:`discreet.device.messages` says how the message is laid out in bytes and reads it strictly. For sums of
features :mod:`discreet.device.linear` encodes and randomizes, with the exact noise of
:mod:`discreet.device.noise`, and :mod:`discreet.device.planning` plans from a public solution.
"""
