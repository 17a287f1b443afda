"""What draws programs: features, inputs, arguments, operators, and aliasing scenarios."""
