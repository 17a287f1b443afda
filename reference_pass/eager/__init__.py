"""Where torch differs from its schemas: the answers to the questions of `semantics`."""
