"""Serves Gymnasium and PettingZoo environments to Flotilla learners.

It speaks flotilla.v1.EnvService as proto/flotilla/v1/env.proto describes it, and
nothing else of Flotilla: to read how a server in another language would be
written, start with play.py.
"""
