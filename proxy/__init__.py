"""Who asks: the ASGI app, the backend client, streaming, headers, admin API, command line."""
