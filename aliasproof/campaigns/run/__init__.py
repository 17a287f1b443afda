"""Run a campaign: shards in worker processes, here or on a cluster, folded in their order."""
