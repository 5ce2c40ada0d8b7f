"""Entry point of ``python -m discreet``, which runs the command line."""

from discreet.cli import main

main()
