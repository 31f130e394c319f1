"""What makes environments, in a file that flotilla.train wrote."""

import pickle
import sys

from flotilla_gym.rows import made_by


def load(path):
    """As rows.make, of the function or class in the file. It runs code of the file's, as unpickling does: the file is as
    much the caller's own as the command that names it."""
    with open(path, "rb") as file:
        # Where its modules were found. Ours, and those of this Python, come first.
        sys.path += [folder for folder in pickle.load(file) if folder not in sys.path]
        return made_by(pickle.load(file))
