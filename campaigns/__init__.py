"""Campaigns: shards in worker processes, reduction and confirmation of failures, the store."""
