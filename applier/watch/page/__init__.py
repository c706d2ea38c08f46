"""The page of a changefeed: one static HTML document that draws the JSON of `status`, and needs nothing else."""
