"""The backend of `torch.compile`: Dynamo's graphs, per layout of their inputs, with gradients."""

from aliasproof.reference_pass.backend.compiled import aliasproof

__all__ = ["aliasproof"]
