"""What torch does otherwise than its schemas say: the answers to the questions of `semantics`."""
