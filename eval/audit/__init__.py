"""Is it worth it? Logged traffic through the code that serves, before a single user is served."""
