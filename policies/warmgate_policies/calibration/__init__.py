"""Thresholds with evidence: from labelled questions to a policy file that promises an error rate, and whether it still holds."""

from warmgate_policies.calibration.calibrate import calibrate
from warmgate_policies.calibration.labels import Label, parse_labels
from warmgate_policies.calibration.policyfile import Entry, PolicyFile, Taken, take

__all__ = ["Entry", "Label", "PolicyFile", "Taken", "calibrate", "parse_labels", "take"]
