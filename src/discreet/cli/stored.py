"""Commands for stored trajectories: learn, verify, ledger."""
