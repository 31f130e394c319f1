"""python3 flotilla_sweep ARGUMENTS: what `flotilla sweep` runs. The standard library is
all that it needs, and Optuna for method OPTUNA."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from flotilla_sweep import sweep  # noqa: E402

sys.exit(sweep.main(sys.argv[1:]))
