#!/usr/bin/env bash
# What the container runs: `applier ...`, or, where Spark on Kubernetes starts this image as an executor, that executor.
set -euo pipefail

if [ "${1:-}" != executor ]; then
  exec applier "$@"
fi

# Spark hands the options of the executor's JVM over as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ...
options=()
for ((i = 0; ; i++)); do
  name="SPARK_JAVA_OPT_$i"
  [ -n "${!name:-}" ] || break
  options+=("${!name}")
done

SPARK_HOME=$(python -c 'import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec("pyspark").origin).parent)')
export SPARK_HOME
home=$(python -m applier.runtime.jvm.java_home)
exec "$home/bin/java" ${options[@]+"${options[@]}"} -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
