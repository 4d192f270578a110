"""Where the thresholds belong on somebody's own traffic, and how sure that is."""
