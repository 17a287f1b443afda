"""Makes a failing `Program` smaller while its signature stays."""
