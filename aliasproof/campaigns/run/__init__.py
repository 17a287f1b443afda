"""Run a campaign: shards in worker processes, here or on a cluster, and fold results in order."""
