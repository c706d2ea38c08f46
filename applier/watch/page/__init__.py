"""The page of a changefeed: one HTML document, made on the server, that needs nothing from elsewhere."""
