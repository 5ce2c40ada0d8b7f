"""A policy service: people and their devices over HTTP, one session, a learner that sees releases.

What comes in, in the order of the parts:

- :mod:`~discreet.serve.study`: the study file, and what it binds before anybody comes;
- :mod:`~discreet.serve.admission`: what a message must be (nothing of it is ever repeated in an error);
- :mod:`~discreet.serve.store`: the database: tickets, messages, plans, releases, one writer's lease;
- :mod:`~discreet.serve.turns`: from a whole batch to the next release, and from that to the next plans;
- :mod:`~discreet.serve.shuffling`, :mod:`~discreet.serve.sums`: under shuffle trust, the process that sees
  single messages, and what it tells the service;
- :mod:`~discreet.serve.intake`: many requests, one commit;
- :mod:`~discreet.serve.app`, :mod:`~discreet.serve.running`: the HTTP side;
- :mod:`~discreet.serve.rehearsal`: simulated people against the real thing.

Needs ``pip install 'discreet[serve]'``. No other room imports this one, but for the command line.
"""
