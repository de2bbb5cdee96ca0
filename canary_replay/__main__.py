"""``python -m canary_replay``: the same as ``canary-replay``."""

from canary_replay.cli import main

main()
