"""What was observed without being served (shadow mode, replay): read, counted, and its mistakes looked at."""
