"""Topics for the benchmark: what TiCDC would have written for a workload, and the table that it must lead to.

Everything is a pure function of a `Workload`: the final rows are known without reading Kafka. In path order:

schema     the upstream table
events     which key is inserted, updated or deleted, in commit order
images     the row that an event writes
expected   the rows that are left at the end
pieces     bytes of many rows at a time
encoder    the contract of the protocols
simple_json simple_avro canal_json open_protocol avro debezium
           one protocol each: images in, message bodies out, formed as TiCDC's encoders form them
stream     all messages of a workload, with partitions, watermarks and bootstraps
produce    the stream, sent to Kafka
"""
