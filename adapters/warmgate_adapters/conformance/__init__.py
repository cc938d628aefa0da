"""The tests that every adapter passes, against stand-in workers over real sockets.

::

    class TestMine(AdapterConformance):
        driver = MyDriver()

A :class:`Driver` builds agents with the framework under test and says what the framework can do; a test of what it cannot is skipped with
that reason. Needs pytest and pytest-asyncio.
"""

from warmgate_adapters.conformance.driver import Agent, Answer, Capability, Conversation, Driver, Told
from warmgate_adapters.conformance.suite import AdapterConformance

__all__ = ["AdapterConformance", "Agent", "Answer", "Capability", "Conversation", "Driver", "Told"]
