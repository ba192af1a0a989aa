"""`python -m prefrl` is `prefrl`."""

import sys

from prefrl.cli import main

sys.exit(main())
