"""A policy service: people and their devices over HTTP, one session, a learner that sees releases.

What comes in, in the order of the parts:

- :mod:`~discreet.service.study_config`: the study file, and what it binds before anybody comes;
- :mod:`~discreet.service.message_validation`: what a message must be (nothing of it is ever repeated in an
  error);
- :mod:`~discreet.service.database`: the database: tickets, messages, plans, releases, one writer's lease;
- :mod:`~discreet.service.release_worker`: from a whole batch to the next release, and from that to the next
  plans;
- :mod:`~discreet.service.shuffler`, :mod:`~discreet.service.batch_sums`: under shuffle trust, the process
  that sees single messages, and what it tells the service;
- :mod:`~discreet.service.ingest`: many requests, one commit;
- :mod:`~discreet.service.app`, :mod:`~discreet.service.server`: the HTTP side;
- :mod:`~discreet.service.dry_run`: simulated people against the real thing.

Needs ``pip install 'discreet[serve]'``. No other room imports this one, but for the command line.
"""
