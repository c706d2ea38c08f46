{{- define "applier.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "applier.selector" -}}
app.kubernetes.io/name: applier
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "applier.labels" -}}
{{ include "applier.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Spark gives its executors the role. */}}
{{- define "applier.executorSelector" -}}
spark-role: executor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The profile "restricted" of Pod Security Admission; the user is that of the image. */}}
{{- define "applier.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "applier.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- define "applier.config" -}}
{{- $config := required "Set config to the text of applier.toml: --set-file config=applier.toml" .Values.config -}}
{{- if regexMatch "(?m)^[ \\t]*\\[[ \\t]*(http|spark)[ \\t]*[.\\]]" $config -}}
{{- fail "Take [http] and [spark] out of config: the chart writes both. Give keys of [spark] as values: --set-json 'spark={\"spark.driver.memory\":\"2g\"}'" -}}
{{- end -}}
{{ $config | trim }}

[http]
port = 9180
address = "0.0.0.0"
token = "${APPLIER_HTTP_TOKEN}"
{{- $spark := dict }}
{{- if .Values.executors.instances }}
{{- $spark = dict
  "spark.master" "k8s://https://kubernetes.default.svc"
  "spark.executor.instances" (toString .Values.executors.instances)
  "spark.executor.cores" (toString .Values.executors.cores)
  "spark.executor.memory" .Values.executors.memory
  "spark.executor.memoryOverhead" .Values.executors.memoryOverhead
  "spark.driver.host" "${POD_IP}"
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.driver.port" "7078"
  "spark.blockManager.port" "7079"
  "spark.kubernetes.namespace" "${POD_NAMESPACE}"
  "spark.kubernetes.driver.pod.name" "${POD_NAME}"
  "spark.kubernetes.container.image" (include "applier.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.authenticate.executor.serviceAccountName" (printf "%s-executor" .Release.Name)
  "spark.kubernetes.executor.podTemplateFile" "/etc/applier/executor.yaml"
  "spark.kubernetes.executor.podTemplateContainerName" "executor"
  "spark.kubernetes.executor.label.app.kubernetes.io/instance" .Release.Name }}
{{- end }}
{{- with merge (deepCopy .Values.spark) $spark }}

[spark]
{{- range $key, $value := . }}
{{ $key | quote }} = {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}
