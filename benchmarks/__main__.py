"""Let `python -m benchmarks` run the benchmarks."""

import sys

from benchmarks import run

sys.exit(run.main())
