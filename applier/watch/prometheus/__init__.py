"""What Prometheus and Grafana get: metrics, alert rules, a dashboard."""
