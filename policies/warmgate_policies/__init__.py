"""Policies of the warmgate router: which tools to mount, which commands may run, and how sure is sure enough."""
