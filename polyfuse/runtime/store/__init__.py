"""Keep compiled programs in files between processes."""
