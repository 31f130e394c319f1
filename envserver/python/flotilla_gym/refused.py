"""How a call ends when it cannot go on."""

import grpc


class Refused(Exception):
    """The call's status: a name of grpc.StatusCode, and what to tell the learner."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = grpc.StatusCode[code]


def unusable(message):
    """An error of a number that nobody can learn from."""
    error = ValueError(message)
    error.unusable = True
    return error


def one_line(text):
    return " ".join(str(text).split())


def cut(text, most):
    """`text` as whole UTF-8 of `most` bytes at most; of more, the first are kept and how many there were."""
    data = text.encode("utf-8", "backslashreplace")  # lone surrogates fit into no message
    if len(data) > most:
        end = f"... ({len(data)} bytes in all)"
        data = (data[: max(0, most - len(end))].decode("utf-8", "ignore") + end).encode()
    return data[:most].decode("utf-8", "ignore")
