"""A model that runs: each graph that Dynamo captures of it is compared with eager."""
