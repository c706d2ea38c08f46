"""The JVM that Spark runs in: its jars, its classes, its session."""
