"""How a call ends when it cannot go on."""

import grpc


class Refused(Exception):
    """The call's status: a name of grpc.StatusCode, and what to tell the learner."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = grpc.StatusCode[code]


def one_line(text):
    return " ".join(str(text).split())
