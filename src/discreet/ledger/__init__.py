"""State that outlives a process: saved sessions, each continued once, and the ledger of a data set."""
