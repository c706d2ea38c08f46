"""Command `init`: write a first configuration from a look at the topics."""
