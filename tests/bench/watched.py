"""usage: watched.py RUN COMMAND...

Runs COMMAND, which trains into the folder RUN, with three pages of `flotilla dashboard` following it: each reads
the page once and then its events, as a browser does, but draws nothing.
"""
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request

PAGES = 3


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
    for _ in range(PAGES):
        threading.Thread(target=follow, args=(url,), daemon=True).start()
    for line in training.stdout:
        print(line, end="", flush=True)
    code = training.wait()
    dashboard.terminate()
    dashboard.wait()
    os._exit(abs(code))  # whatever the pages still read


if __name__ == "__main__":
    main()
