"""The wire of a worker as the engines meet it: one suite for the stand-in and for a real vLLM.

Import :mod:`tests.wire.suite` with ``from tests.wire.suite import *`` into a test module that defines the fixture ``worker``.
"""
