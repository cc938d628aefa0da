"""Making the decision prompt extend the agent's prompt."""
