"""Environments that run an event loop of their own: robots, browsers, games on a network."""

import asyncio
import functools


def outside_the_loop(function):
    """Has `function` run as it would without the server's loop, inside of which asyncio lets nobody run another."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return function(*args, **kwargs)
        finally:
            asyncio._set_running_loop(loop)

    return call
