"""Code that runs on a user's device. It reads raw data, and imports only NumPy and the standard library.

Only the client :mod:`~discreet.device.http_client` has other requirements (httpx and cryptography).

Every message is an envelope (:mod:`~discreet.device.message_envelope`) around a payload. The device encodes
it with the parameters of a public form (:mod:`~discreet.device.session_config`). Every device computes the
privacy loss of its message (:mod:`~discreet.device.message_guarantee`). The modules are:

- :mod:`~discreet.device.count_device`: noisy counters of a trajectory (local privacy);
- :mod:`~discreet.device.randomized_response_device`: randomized reports of a few random steps (local or
  shuffle privacy);
- :mod:`~discreet.device.shuffle_encoder`, :mod:`~discreet.device.shuffle_payload`: random bits (shuffle
  privacy);
- :mod:`~discreet.device.linear_device`: noisy sums of features (local privacy), with
  :mod:`~discreet.device.linear_planning` to plan from a public solution, and
  :mod:`~discreet.device.linear_sensitivity`, the formulas for the privacy loss of the sums;
- :mod:`~discreet.device.feature_map`, :mod:`~discreet.device.context_policy`: features of real-valued
  contexts, and the action of a plan;
- :mod:`~discreet.device.skellam_device`: sums over contexts with a share of the noise (shuffle model);
- :mod:`~discreet.device.discrete_noise`, :mod:`~discreet.device.skellam_noise`: exact noise;
- :mod:`~discreet.device.published_device`: reader of published forms of every kind;
- :mod:`~discreet.device.integer_encoding`: vectors of integers as bytes;
- :mod:`~discreet.device.http_client`: client of the policy service.

Servers and simulations encode messages with the same code and other random generators.
"""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
