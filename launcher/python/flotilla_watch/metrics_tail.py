"""A run's metrics.jsonl, read while it grows."""

import json
import math
import os
import pathlib
import re

MOST_A_SECOND = 2  # updates; see Thinning
MOST_AT_ONCE = 300
MOST_BYTES = 4 << 20  # in one poll, so that others get their turn
LONGEST_LINE = 1 << 20
UPDATE = b'"charts/SPS"'  # what every update's line has, and no other
SECONDS = re.compile(rb'"wall_seconds": ?(\d+(?:\.\d+)?)')


def numbers_of(row):
    """The finite numbers of a line, by name; {} where it is none of ours."""
    if not isinstance(row, dict):
        return {}
    found = {}
    for name, value in row.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        try:
            value = float(value)
        except OverflowError:
            continue
        if math.isfinite(value):
            found[name] = value
    return found


def rows_of(line):
    """Its numbers, in a list; none of what is no line of ours."""
    if len(line) > LONGEST_LINE:
        return []
    try:
        row = numbers_of(json.loads(line))
    except (ValueError, RecursionError):
        return []
    return [row] if "global_step" in row else []


class Thinning:
    """Runs of small networks write hundreds of updates a second, which nobody sees
    and each of which takes time from the run. So of a run that has written MOST_AT_ONCE
    faster than MOST_A_SECOND, only as many as that are kept, by the run's own clock."""

    def __init__(self):
        self._left = MOST_AT_ONCE
        self._seconds = 0.0

    def keeps(self, line):
        # What is not of an update alone, as an evaluation, is never too much.
        found = SECONDS.search(line) if UPDATE in line else None
        if found is None:
            return True
        seconds = float(found[1])
        self._left = min(MOST_AT_ONCE, self._left + max(0.0, seconds - self._seconds) * MOST_A_SECOND)
        self._seconds = seconds
        if self._left < 1:
            return False
        self._left -= 1
        return True


class MetricsTail:
    """Lines since the last poll, thinned. One that is cut off waits for its end; what
    is no line of ours is left out. Not thread-safe."""

    def __init__(self, path, offset=0, inode=0):
        self.path = pathlib.Path(path)
        self.offset = offset  # of the first byte that was not returned yet
        self.inode = inode  # 0: nothing was read yet
        self.behind = False  # there is more to read at once
        self._thinning = Thinning()
        self._dropped = None  # the newest update's line, if it was too much

    def poll(self):
        """(rows, anew): `anew` where the file is not the one that was read before,
        or is shorter: rows are from its beginning then. A resumed run sets lines
        aside."""
        anew = self.behind = False
        try:
            with open(self.path, "rb") as file:
                info = os.fstat(file.fileno())
                if self.inode and (info.st_ino != self.inode or info.st_size < self.offset):
                    self.offset, anew = 0, True
                    self._thinning, self._dropped = Thinning(), None
                self.inode = info.st_ino
                file.seek(self.offset)
                data = file.read(MOST_BYTES)
        except OSError:
            return [], False
        end = data.rfind(b"\n") + 1
        self.behind = len(data) == MOST_BYTES
        if not end and self.behind:  # a line that nobody of us wrote
            self.offset += len(data)
            return [], anew
        self.offset += end
        rows = []
        if not data and self._dropped:  # how far the run came
            rows, self._dropped = rows_of(self._dropped), None
        for line in data[:end].splitlines():
            kept = self._thinning.keeps(line)
            if kept:
                rows += rows_of(line)
            if not kept or UPDATE in line:
                self._dropped = None if kept else line
        return rows, anew
