"""What outlives a process: states of sessions, each continued once, and the ledger of a data set."""
