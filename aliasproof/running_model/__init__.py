"""A running model: each graph that Dynamo captures of it is compared with eager."""
