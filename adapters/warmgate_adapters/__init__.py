"""Adapters that put the warmgate router into agent frameworks."""
