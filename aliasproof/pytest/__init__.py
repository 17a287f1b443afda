"""The pytest plugin, and the shards of a campaign as tests."""
