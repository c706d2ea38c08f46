"""applier: keeps Iceberg tables equal to a TiDB database, from its TiCDC changefeed.

The folders are the path of an event, in order:

changefeed  the nouns: what a changefeed carries
consume     Kafka or an archive -> messages
decode      message -> events
order       events -> at most one change per key, at or below the watermark
sink        changes -> one fenced Iceberg commit per table
"""
