"""Which packages a Python program of ours imports."""

import importlib.machinery
import pathlib
import sys

_FOLDER = str(pathlib.Path(__file__).resolve().parents[1])


class _Ours:
    """Finds the packages beside this one that are ours."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if path is not None or not name.startswith("flotilla"):
            return None
        return importlib.machinery.PathFinder.find_spec(name, [_FOLDER])


def come_first():
    """For what is run by its folder, and has put the one that this package is in in its place, first in sys.path. That may
    be the site-packages of another Python, whose numpy would hide this one's: of what is there only ours comes first."""
    del sys.path[0]
    if _FOLDER not in sys.path:
        sys.path.append(_FOLDER)
    sys.meta_path.insert(0, _Ours)
