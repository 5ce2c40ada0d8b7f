"""Opponents: black box, white box, replays, membership. Nothing below imports them."""
