"""What a launch would do and where a launched sweep stands, without running anything."""
