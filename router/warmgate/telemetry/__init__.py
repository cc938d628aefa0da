"""What the gate tells the world: metrics, spans, logs and a replayable record, each behind the same few methods.

Nothing here may fail or delay a decision: see :class:`~warmgate.telemetry.protocol.Fan`.
"""
