"""What the process needs around the pipeline: Spark, Java, logs, metrics, retries, stop requests."""
