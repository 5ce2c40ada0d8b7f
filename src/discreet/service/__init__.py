"""Policy service: HTTP interface for users' devices, one session, and a learner that reads only releases.

The modules are listed in the order in which they process input:

- :mod:`~discreet.service.study_config`: the study file, whose values are fixed before the first user takes
  part;
- :mod:`~discreet.service.message_validation`: the check of a message (an error never repeats the message's
  content);
- :mod:`~discreet.service.database`: the tables of tickets, messages, plans and releases, and the lease of the
  process that makes releases;
- :mod:`~discreet.service.release_worker`: the steps from a complete batch to the next release, and from this
  release to the next plans;
- :mod:`~discreet.service.shuffler`, :mod:`~discreet.service.batch_sums`: in the shuffle model, the process
  that receives individual messages, and the sums that it sends to the service;
- :mod:`~discreet.service.ingest`: the queue that commits many requests in one transaction;
- :mod:`~discreet.service.app`, :mod:`~discreet.service.server`: the HTTP application and the process that
  runs it;
- :mod:`~discreet.service.system_io`: the clock, threads, random bytes and files that all of them use;
- :mod:`~discreet.service.dry_run`: a run of the real service with simulated users.

This package needs ``pip install 'discreet[serve]'``. It is imported only by the command line.
"""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
