import pytest

from harness import Sandbox


@pytest.fixture
def sandbox(tmp_path):
    sandbox = Sandbox(tmp_path)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def shared_sandbox(tmp_path_factory):
    """For several tests that look at what one run left."""
    sandbox = Sandbox(tmp_path_factory.mktemp("shared"))
    yield sandbox
    sandbox.close()
