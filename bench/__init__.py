"""The benchmark: what a changefeed costs applier, beside what the machine allows and what others need for the same.

`python -m bench.run` makes topics, starts every contender as a process of its own, measures the whole tree of its
processes, compares its table with the expected one, and prints one table. In path order:

topic      what TiCDC would have written, and the rows that must be left
services   a Kafka broker, a schema registry
meter      a command in, its seconds, CPU seconds and memory out, with all its descendants
freshness  a feed at its own pace, and how long after its commit a change can be read
limits     Spark reading the topic and nothing else; Spark reading, decoding and appending
peers      other ways to apply the topic
check      the final tables, compared with the expected ones
report     the printed table
run        all of it
"""
