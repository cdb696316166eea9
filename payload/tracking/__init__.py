"""What MLflow shows of a run: metrics, parameters, curves."""
