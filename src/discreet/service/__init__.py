"""Policy service: users' devices over HTTP, one session, and a learner that sees only releases.

Modules, in the order in which they process input:

- :mod:`~discreet.service.study_config`: the study file, and what it fixes before any user comes;
- :mod:`~discreet.service.message_validation`: the required form of a message (an error never repeats any of
  it);
- :mod:`~discreet.service.database`: tickets, messages, plans, releases and one writer's lease;
- :mod:`~discreet.service.release_worker`: from a whole batch to the next release, and from that to the next
  plans;
- :mod:`~discreet.service.shuffler`, :mod:`~discreet.service.batch_sums`: under shuffle trust, the process
  that sees single messages, and what it sends to the service;
- :mod:`~discreet.service.ingest`: many requests, one commit;
- :mod:`~discreet.service.app`, :mod:`~discreet.service.server`: the HTTP side;
- :mod:`~discreet.service.dry_run`: simulated users of the real service.

Needs ``pip install 'discreet[serve]'``. No other package imports this one, except the command line.
"""

from discreet import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
