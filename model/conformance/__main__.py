"""``python -m model.conformance``: see `model.conformance.cli`."""

import sys

from model.conformance.cli import main

sys.exit(main())
