"""``python -m streaming``: the command line."""

from __future__ import annotations

import signal
import sys

from streaming.cli import main

if __name__ == "__main__":
    # A terminated command (``timeout``, a container's stop) leaves by an exception, so that children end and directories go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
