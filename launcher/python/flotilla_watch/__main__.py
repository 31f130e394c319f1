"""What looks at runs from Python: python3 flotilla_watch dashboard|track ARGUMENTS.

`flotilla dashboard` and `flotilla train --track` start it. The standard library
is all that the dashboard needs.
"""

import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)

from flotilla_gym import ours  # noqa: E402

ours.come_first()


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "dashboard":
        from flotilla_watch import dashboard

        return dashboard.main(sys.argv[2:])
    if what == "track":
        from flotilla_watch import track

        return track.main(sys.argv[2:])
    print("flotilla_watch: want dashboard or track, and their arguments", file=sys.stderr)
    return 2


sys.exit(main())
