#!/bin/sh
# Creates the bucket of the warehouse, once MinIO answers.
set -eu
until mc alias set lake http://minio:9000 "$S3_KEY" "$S3_SECRET"; do sleep 1; done
mc mb --ignore-existing lake/lake
