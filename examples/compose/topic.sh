#!/bin/sh
# Creates the topic before TiCDC and applier ask for it. The log is applier's only buffer: nothing is deleted.
set -eu
/opt/kafka/bin/kafka-topics.sh --bootstrap-server kafka:9092 --create --if-not-exists --topic shop --partitions 3 \
  --replication-factor 1 --config retention.ms=-1
