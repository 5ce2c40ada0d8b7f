"""Attacks for audits: black box, white box, replays, membership. No lower package imports them."""
