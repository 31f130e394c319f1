"""The games that runs keep: their list and their films, by flotilla replay."""

import json
import pathlib
import subprocess
import tempfile
import threading

from flotilla_watch.status_watch import start

LIST_TIMEOUT = 20
FILM_TIMEOUT = 120  # seconds: an environment may be slow to play again
MOST_LIST_BYTES = 4 << 20
MOST_FILM_BYTES = 64 << 20
MOST_GAMES = 200
KEYS = ("number", "kept_as", "evaluation", "end", "return", "steps", "global_step")


class Refused(Exception):
    """In words for the reader."""


class Games:
    """One film is made at a time: it is the host's cores that play. Thread-safe; blocks."""

    def __init__(self, flotilla, credential_flags):
        self._flotilla = flotilla
        self._flags = credential_flags
        self._filming = threading.Lock()

    def list(self, path):
        """[{KEYS}] of the run in the folder `path`."""
        said = self._ask(LIST_TIMEOUT, path, "--list", "--json")
        try:
            games = json.loads(said) if len(said) < MOST_LIST_BYTES else None
            return [{key: game[key] for key in KEYS} for game in games[:MOST_GAMES]]
        except (KeyError, TypeError, ValueError, RecursionError):
            raise Refused("flotilla replay said what is no list of games") from None

    def film(self, path, number, global_step):
        """(what is said of it, WebP) of the game that the list has as `number` and of `global_step`."""
        if not self._filming.acquire(blocking=False):
            raise Refused("another film is being made; try again in a moment")
        try:
            if not any((game["number"], game["global_step"]) == (number, global_step) for game in self.list(path)):
                raise Refused("that game is not kept any more")
            with tempfile.TemporaryDirectory() as folder:
                film = pathlib.Path(folder) / "game.webp"
                said = self._ask(FILM_TIMEOUT, path, f"--episode={number}", f"--video={film}")
                if film.stat().st_size > MOST_FILM_BYTES:
                    raise Refused("the film is too large for a page; flotilla replay makes it a file")
                return said.decode(errors="replace").splitlines()[0], film.read_bytes()
        finally:
            self._filming.release()

    def _ask(self, timeout, path, *words):
        try:
            process = start([self._flotilla, "replay", path, *words, *self._flags], stderr=subprocess.PIPE)
        except OSError as error:
            raise Refused(f"flotilla replay cannot be started: {error.strerror}") from None
        try:
            said, problem = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Refused(f"flotilla replay took more than {timeout} seconds") from None
        if process.returncode != 0:
            raise Refused((problem.decode(errors="replace").strip().splitlines() or ["flotilla replay failed"])[-1])
        return said
