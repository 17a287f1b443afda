"""The backend of `torch.compile`: Dynamo's graphs, per layout of their inputs, with gradients."""

from aliasproof.reference_pass.backend.dynamo_backend import aliasproof

__all__ = ["aliasproof"]
