"""``warmgate demo``: a gated LangGraph agent at work on stand-in workers, turn by turn, and what its gate cost against others.

Needs the extra ``demo`` (LangGraph). Everything is made for the run and removed after it: workers, a scratch project, a record
of the traffic.
"""

from warmgate_adapters.demo.demo import Given, Options, run
from warmgate_adapters.demo.rows import SCHEMA, Moved, Result, Row, Verdict, Way
from warmgate_adapters.demo.screen import Screen

__all__ = ["SCHEMA", "Given", "Moved", "Options", "Result", "Row", "Screen", "Verdict", "Way", "run"]
