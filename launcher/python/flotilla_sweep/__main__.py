"""python3 flotilla_sweep ARGUMENTS: what `flotilla sweep` runs. The standard library is
all that it needs, and Optuna for method OPTUNA."""

import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)

from flotilla_gym import ours  # noqa: E402

ours.come_first()

from flotilla_sweep import sweep  # noqa: E402

sys.exit(sweep.main(sys.argv[1:]))
