"""Metrics and logs, fed outside the hot loop; imports no other room."""
