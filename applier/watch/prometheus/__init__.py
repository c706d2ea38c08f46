"""The metrics that Prometheus gets; the alert rules and the dashboard on them are in `deploy/`."""
