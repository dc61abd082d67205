//! docs/metrics.md and docs/grafana-dashboard.json name the metrics that there are.
