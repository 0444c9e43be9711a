"""What is built on `compile`: schedules compared, proposed steps judged, functions in compiled pieces, terminals."""
