"""What a turn means. Pure: text in, values out; no HTTP, no database, no clock."""
