"""A run's metrics.jsonl, read while it grows."""

import json
import math
import os
import pathlib

MOST_BYTES = 4 << 20  # in one poll, so that others get their turn
LONGEST_LINE = 1 << 20


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


class MetricsTail:
    """Whole lines since the last poll. A line that is cut off waits for its end;
    what is no line of ours is left out. Not thread-safe."""

    def __init__(self, path, offset=0, inode=0):
        self.path = pathlib.Path(path)
        self.offset = offset  # of the first byte that was not returned yet
        self.inode = inode  # 0: nothing was read yet
        self.behind = False  # there is more to read at once

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
        for line in data[:end].splitlines():
            if len(line) > LONGEST_LINE:
                continue
            try:
                row = numbers_of(json.loads(line))
            except (ValueError, RecursionError):
                continue
            if "global_step" in row:
                rows.append(row)
        return rows, anew
