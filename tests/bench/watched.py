"""usage: watched.py RUN COMMAND...

Runs COMMAND, which trains into the folder RUN and tracks it, with three pages of `flotilla dashboard` following it: each
reads the page once and then its events, as a browser does, but draws nothing. From second START on, once the tracker has
been told something, by turns of TURN seconds, all of that is held (SIGSTOP), makes up for what it missed, and goes on
as always, which is said in lines of `turn held SECOND`, `turn catching-up SECOND` and `turn going SECOND` on the run's
clock, and at the end `turn over SECOND` if it lived all the while. After a turn that was going, `took SHARE` is what side-car
and dashboard had of the time of one core.
"""
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import ours

PAGES = 3
WHAT = ["held", "catching-up", "going"]
START, TURN, TURNS = 10, 10, 10  # the last one held, as the first


def follow(url):
    with urllib.request.urlopen(url) as page:
        page.read()
    with urllib.request.urlopen(url + "events?groups=charts,eval,perf") as events:
        for _ in events:
            pass


def url_of(dashboard):
    for line in dashboard.stdout:
        found = re.search(r"http://\S+/", line)
        if found:
            return found[0]
    sys.exit("watched.py: the dashboard says no address")


def children():
    """{process: (its parent, its command line)}"""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat, open(f"/proc/{entry}/cmdline") as words:
                    found[int(entry)] = int(stat.read().rsplit(")", 1)[1].split()[1]), words.read().replace("\0", " ")
            except OSError:  # gone
                pass
    return found


def watchers(dashboard):
    """The dashboard with what it has started, and the side-car."""
    all_of_them = children()

    def is_below(process, ancestor):
        while process in all_of_them and process != ancestor:
            process = all_of_them[process][0]
        return process == ancestor

    return [process for process, (_, command) in all_of_them.items()
            if is_below(process, dashboard.pid) or is_below(process, os.getpid()) and "flotilla_watch track " in command]


def cpu_seconds(processes):
    """What they have had of a core, their own children that ended included."""
    ticks = 0
    for process in processes:
        try:
            with open(f"/proc/{process}/stat") as stat:
                ticks += sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:15]))
        except OSError:  # gone: its parent has it
            pass
    return ticks / os.sysconf("SC_CLK_TCK")


def signal_all(processes, number):
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:  # `flotilla runs` has ended
            pass


def take_turns(run, dashboard, pages):
    def second():
        line = ours.newest_line(run)
        return line["wall_seconds"] if line else 0.0

    def all_live():
        tracked = [command for _, command in children().values() if "flotilla_watch track " in command]
        return dashboard.poll() is None and all(page.is_alive() for page in pages) and tracked

    while second() < START or not os.path.exists(os.path.join(run, "trackers", "trackio.json")):
        time.sleep(0.25)
    for turn in range(TURNS):
        if not all_live():
            return
        what = WHAT[turn % len(WHAT)]
        held = watchers(dashboard) if what == "held" else []
        signal_all(held, signal.SIGSTOP)
        print(f"turn {what} {second()}", flush=True)
        before, began = cpu_seconds(watchers(dashboard)), time.monotonic()
        time.sleep(TURN)
        if what == "going":
            share = (cpu_seconds(watchers(dashboard)) - before) / (time.monotonic() - began)
            print(f"took {share:.5f}", flush=True)
        signal_all(held, signal.SIGCONT)
    print(f"turn over {second()}", flush=True)


def shares(output, updates):
    """Of each turn that was going the speed beside that of the held ones around it, which it has two turns and one turn
    away. `updates`: (second, steps)."""
    marks = re.findall(r"^turn ([\w-]+) ([\d.]+)$", output, re.M)
    if not marks or marks[-1][0] != "over":
        return []
    speeds = []
    for (what, begin), (_, end) in zip(marks, marks[1:]):
        inside = [x for x in updates if float(begin) < x[0] <= float(end)]
        if len(inside) < 2:
            return []
        (a, first), (b, last) = inside[0], inside[-1]
        speeds.append((what, (last - first) / (b - a)))
    return [speed / ((before + 2 * after) / 3) for (_, before), _, (what, speed), (_, after)
            in zip(speeds, speeds[1:], speeds[2:], speeds[3:]) if what == "going"]


def main():
    run, command = sys.argv[1], sys.argv[2:]
    training = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGTERM, lambda *_: training.terminate())
    for line in training.stdout:
        print(line, end="", flush=True)
        if line.startswith("coordinator: "):  # the run is there
            break
    else:
        sys.exit(training.wait())
    dashboard = subprocess.Popen([command[0], "dashboard", run, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
    url = url_of(dashboard)
    pages = [threading.Thread(target=follow, args=(url,), daemon=True) for _ in range(PAGES)]
    for thread in pages + [threading.Thread(target=take_turns, args=(run, dashboard, pages), daemon=True)]:
        thread.start()
    for line in training.stdout:
        print(line, end="", flush=True)
    code = training.wait()
    signal_all(watchers(dashboard), signal.SIGCONT)
    dashboard.terminate()
    dashboard.wait()
    os._exit(abs(code))  # whatever the pages still read


if __name__ == "__main__":
    main()
