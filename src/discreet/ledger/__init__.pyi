"""The ledger and signatures."""

from discreet.ledger.ledger import Ledger as Ledger
from discreet.ledger.owner_rules import require_ledger as require_ledger
from discreet.ledger.signatures import new_key as new_key
from discreet.ledger.signatures import read_private_key as read_private_key
from discreet.ledger.signatures import read_public_key as read_public_key

__all__: list[str]
