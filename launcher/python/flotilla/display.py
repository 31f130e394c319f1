"""Progress of a run, read from its metrics.jsonl: a line that rewrites itself in a terminal, an output that does in a
notebook, lines now and then elsewhere."""

import html
import json
import os
import shutil
import sys
import time

_REDRAW, _PLAIN = 0.25, 5.0  # seconds
_CELLS = 20


class Progress:
    """What the newest lines of metrics.jsonl say."""

    def __init__(self, path):
        self._path = path
        self._inode = 0  # nothing was read yet
        self._offset = 0
        self.row, self.evaluation = {}, None

    def poll(self):
        """Reads what was added, from the beginning where the file is another one or shorter: a run that goes on sets
        lines aside. Whether anything was."""
        read = False
        try:
            with open(self._path, "rb") as file:
                info = os.fstat(file.fileno())
                if self._inode and (info.st_ino != self._inode or info.st_size < self._offset):
                    self._offset = 0
                    self.row, self.evaluation = {}, None
                self._inode = info.st_ino
                file.seek(self._offset)
                while (line := file.readline()).endswith(b"\n"):
                    read = True
                    self._offset += len(line)
                    self._take(line)
        except OSError:  # there is none yet
            pass
        return read

    def _take(self, line):
        try:
            row = json.loads(line)
        except ValueError:
            return
        if not isinstance(row, dict):
            return
        self.evaluation = row.get("eval/mean_return", self.evaluation)
        if "charts/SPS" in row:
            self.row = row

    def parts(self, total):
        """["43%", "215,040 / 500,000 steps", ...] of `total` steps; 0: not known."""
        step = self.row.get("global_step")
        if step is None:
            return ["starting"]
        parts = [f"{100 * min(1, step / total):3.0f}%", f"{step:,} / {total:,} steps"] if total else [f"{step:,} steps"]
        rate = self.row.get("charts/SPS") or 0
        if rate > 0:
            parts.append(f"{rate:,.0f} steps/s")
        if rate > 0 and total > step:
            parts.append(f"ETA {_seconds((total - step) / rate)}")
        for name, value in (("return", self.row.get("charts/episodic_return")), ("eval", self.evaluation)):
            if value is not None:
                parts.append(f"{name} {value:.1f}")
        return parts

    def fraction(self, total):
        return min(1.0, self.row.get("global_step", 0) / total) if total else 0.0


def _seconds(seconds):
    minutes, hours = round(seconds) // 60, round(seconds) // 3600
    return f"{hours}h{minutes % 60:02d}m" if hours else f"{minutes}m{round(seconds) % 60:02d}s" if minutes else f"{round(seconds)}s"


class _Nothing:
    def __init__(self, name):
        self._name = name

    def say(self, line):
        pass

    def show(self, progress, total, last=False):
        pass


class Words(_Nothing):
    """What the program says, and nothing of progress."""

    def say(self, line):
        print(line, flush=True)


class _Lines(Words):
    """A line now and then, for logs."""

    _shown = ""
    _next = 0.0
    _trained = False

    def show(self, progress, total, last=False):
        begins = bool(progress.row) and not self._trained
        if last or (time.monotonic() < self._next and not begins):  # at the end, the program has said more
            return
        self._trained = bool(progress.row)
        self._next = time.monotonic() + _PLAIN
        line = f"{self._name}: {'  '.join(progress.parts(total))}"
        if line != self._shown:
            self._shown = line
            print(line, flush=True)


class _Terminal(_Nothing):
    """One line, rewritten."""

    _line = ""
    _next = 0.0

    def say(self, line):
        sys.stdout.write(f"\r\x1b[K{line}\n{self._line}")
        sys.stdout.flush()

    def show(self, progress, total, last=False):
        if time.monotonic() < self._next and not last:
            return
        self._next = time.monotonic() + _REDRAW
        full = round(progress.fraction(total) * _CELLS)
        bar = f"[{'#' * full}{'-' * (_CELLS - full)}] " if total else ""
        line = f"{self._name} {bar}{'  '.join(progress.parts(total))}"[: shutil.get_terminal_size().columns - 1]
        sys.stdout.write(f"\r\x1b[K{line}" + ("\n" if last else ""))
        sys.stdout.flush()
        self._line = "" if last else line


class _Notebook(_Nothing):
    """A cell's output, rewritten. It stays in the notebook as it was last."""

    _handle = None
    _next = 0.0

    def say(self, line):
        print(line, flush=True)

    def show(self, progress, total, last=False):
        if time.monotonic() < self._next and not last:
            return
        from IPython.display import display

        self._next = time.monotonic() + _REDRAW
        text = "  ".join(progress.parts(total))
        bar = f'<progress max="1" value="{progress.fraction(total):.4f}"></progress> ' if total else ""
        data = {
            "text/plain": f"{self._name}: {text}",
            "text/html": f'<div style="font-family: monospace; white-space: pre">{html.escape(self._name)} {bar}{html.escape(text)}</div>',
        }
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _in_notebook():
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def make(mode, name):
    """Of "auto", "plain" and "none"."""
    if mode == "none":
        return _Nothing(name)
    if mode == "plain":
        return _Lines(name)
    if _in_notebook():
        return _Notebook(name)
    return _Terminal(name) if sys.stdout.isatty() else _Lines(name)
