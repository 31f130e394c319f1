"""What happened to a run and its ranks: generations, faults, who did what when."""

import datetime
import re
from collections import deque

MOST_MARKS = 400
MOST_SEGMENTS = 1500  # of a rank
MOST_RANKS = 256
GAP = 5.0  # seconds without a status, of which nothing is known
QUARTER = 900  # seconds: time zones are multiples of it apart
FLUSHED = 60  # seconds, within which a log's line is in its file

# As glog begins a line: "W20261122 16:49:50.922875 21305 roster.cc:479] ".
LOG_LINE = re.compile(r"([IWEF])(\d{8} \d\d:\d\d:\d\d\.\d{6})\s+\d+ [\w.]+:\d+\] (.*)")


def parse_log_line(line, zone=None):
    """(time, severity, message) of a log's line, whose times are of `zone` (None: this
    host's own); None of what is not the first of an entry."""
    found = LOG_LINE.fullmatch(line.strip())
    if found is None:
        return None
    try:
        at = datetime.datetime.strptime(found[2], "%Y%m%d %H:%M:%S.%f").replace(tzinfo=zone).timestamp()
    except (ValueError, OverflowError):
        return None
    return at, found[1], found[3]


def zone_of_log(line, written, otherwise):
    """The zone of the times of a log, whose last line was written at `written`: glog
    writes its host's, or container's, and does not say which. None: this host's own;
    `otherwise` where nothing tells, as of a file that was copied later."""
    own, utc = parse_log_line(line), parse_log_line(line, datetime.timezone.utc)
    if own is None or utc is None:
        return otherwise
    if abs(own[0] - written) < QUARTER / 2:
        return None
    quarters = round((utc[0] - written) / QUARTER)
    if not -12 * 4 <= quarters <= 14 * 4 or abs(utc[0] - written - quarters * QUARTER) > FLUSHED:
        return otherwise
    return datetime.timezone(datetime.timedelta(seconds=quarters * QUARTER))


def mark_of_log(line, zone=None):
    """The (time, kind, text) that a line of the coordinator's log is worth."""
    parsed = parse_log_line(line, zone)
    if parsed is None:
        return None
    at, severity, text = parsed
    if re.match(r"generation \d+ has formed", text):
        return at, "generation", text
    if severity in "WEF":
        return at, "fault", text
    if text.startswith(("told to stop", "the run is over", "taking over run")):
        return at, "note", text
    return None


class Lanes:
    """What each learner did when, as segments of one phase each."""

    def __init__(self):
        self._by_rank = {}  # rank: (how many there were in all, the newest of them)

    def add(self, now, learners, generation):
        for learner in learners:
            rank = learner.get("rank")
            if not isinstance(rank, int) or rank < 0 or (rank not in self._by_rank and len(self._by_rank) >= MOST_RANKS):
                continue
            state = str(learner.get("state", ""))
            phase = str(learner.get("phase", "")).lower()
            what = phase if state == "alive" and phase != "phase_unspecified" else "joining" if state == "alive" else state
            count, segments = self._by_rank.setdefault(rank, (0, deque(maxlen=MOST_SEGMENTS)))
            now = round(now, 2)
            if segments and now - segments[-1][1] < GAP:
                segments[-1][1] = now  # as far as one knows, it went on until now
            if not segments or segments[-1][1] != now or segments[-1][2:] != [what, generation]:
                segments.append([now, now, what, generation])
                self._by_rank[rank] = (count + 1, segments)

    def since(self, seen):
        """{rank: [number of the first, segments]} after what `seen`, which
        remembers, has of each; the last one it has may have grown."""
        told = {}
        for rank, (count, segments) in sorted(self._by_rank.items()):
            first = max(count - len(segments), seen.get(rank, 0) - 1, 0)
            told[str(rank)] = [first, list(segments)[first - count :] if first < count else []]
            seen[rank] = count
        return told


class StatusMarks:
    """Marks from one status to the next."""

    def __init__(self, generations):
        self._generations = generations  # whether those are told too: no log does
        self._last = None
        self._answers = None

    def compare(self, status):
        """[(kind, text, rank)]; `status` is None where nobody answers."""
        if status is None:
            lost, self._answers = self._answers, False
            return [("fault", "the coordinator does not answer", None)] if lost and not self._over() else []
        marks = []
        if self._answers is False and self._last is not None:
            marks.append(("note", "the coordinator answers again", None))
        self._answers = True
        before, self._last = self._last, status
        if before is None:
            return marks
        if self._generations and status.get("generation") != before.get("generation"):
            marks.append(("generation", f"generation {status.get('generation')}: {status.get('fence_reason') or 'formed'}", None))
        old = {learner.get("id"): learner for learner in before.get("learner", [])}
        for learner in status.get("learner", []):
            marks += _learner_marks(old.get(learner.get("id"), {}), learner)
        rest = _count(status, "env_worker_restarts") - _count(before, "env_worker_restarts")
        if rest > 0 and not any("of learner" in text for _, text, _ in marks):
            marks.append(("fault", f"{rest} env worker{'s' if rest > 1 else ''} restarted", None))
        if status.get("started_over") and status.get("started_over") != before.get("started_over"):
            marks.append(("fault", str(status["started_over"]), None))
        return marks

    def _over(self):
        return self._last is not None and self._last.get("state") == "CLOSED"


def _count(status, name):
    try:
        return int(status.get(name, 0))
    except (TypeError, ValueError):
        return 0


def _learner_marks(before, now):
    # Between generations it has no rank.
    rank = next((learner.get("rank") for learner in (now, before) if learner.get("rank", -1) >= 0), None)
    name = now.get("id") if rank is None else f"learner {rank}"
    marks = []
    if _count(now, "restarts") > _count(before, "restarts") and before:
        marks.append(("fault", f"{name} was replaced", rank))
    if now.get("state") in ("suspect", "dead") and now.get("state") != before.get("state"):
        marks.append(("fault", f"{name} is {now['state']}", rank))
    if now.get("trouble") and now.get("trouble") != before.get("trouble"):
        marks.append(("fault", f"{name}: {now['trouble']}", rank))
    old = {worker.get("id"): worker for worker in before.get("env_worker", [])}
    for worker in now.get("env_worker", []):
        was = old.get(worker.get("id"))
        if was is not None and _count(worker, "restarts") > _count(was, "restarts"):
            marks.append(("fault", f"{worker.get('id')} of {name} was restarted", rank))
    return marks
