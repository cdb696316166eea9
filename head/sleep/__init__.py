"""The head puts the cluster to sleep: results saved, workers deleted, head deallocated."""
