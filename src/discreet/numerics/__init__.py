"""The ground under every room: compilation, addressed random streams, checks at the door."""
