"""What torch does otherwise than its schemas say, as tables and functions of one call."""
