"""The example of a loop of one's own, as its first lines say to run it."""

import re

from harness import SOURCE, TIMEOUT, poll

EXAMPLE = SOURCE / "learner" / "examples" / "your_own_module.cc"


def test_the_example_trains_on_two_ranks_of_uneven_length(sandbox):
    address = sandbox.folder / "address"
    sandbox.serve("flotilla-coordinator", "--listen=127.0.0.1:0", "--min_learners=2", "--insecure", f"--address_file={address}")
    poll(lambda: address.exists() and address.read_text().strip(), "the coordinator's address")
    ranks = [sandbox.serve("flotilla-example", address.read_text().strip(), str(r), "2") for r in range(2)]
    for rank in ranks:
        assert rank.wait(TIMEOUT) == 0, (sandbox.folder / "flotilla-example.log").read_text()
    said = (sandbox.folder / "flotilla-example.log").read_text()
    lengths = {rank: float(steps) for rank, steps in re.findall(r"rank (\d): ([\d.]+) steps an episode", said)}
    assert lengths.keys() == {"0", "1"}, said
    assert min(lengths.values()) > 30, said  # 22 where nothing is learned


def test_the_example_stays_an_example():
    assert len(EXAMPLE.read_text().splitlines()) <= 60
