{{/* What the objects of a release are called: its name, with the chart's unless it has that in it. */}}
{{- define "bireme.name" -}}
{{- $name := ternary .Release.Name (printf "%s-bireme" .Release.Name) (contains "bireme" .Release.Name) -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels that select the pods of one component: (list $ "forecast"). They never change. */}}
{{- define "bireme.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: bireme
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of the objects of one component: (list $ "forecast"). */}}
{{- define "bireme.labels" -}}
{{- $root := index . 0 -}}
{{ include "bireme.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* An image: (list $ "bireme-forecast"). */}}
{{- define "bireme.image" -}}
{{- $root := index . 0 -}}
{{- $image := $root.Values.image -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ index . 1 }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}

{{/* What the Pod Security level "restricted" asks of a pod, beyond its containers. */}}
{{- define "bireme.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The same of a container; nothing of ours writes into its image. */}}
{{- define "bireme.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What operator and extender are told besides their settings. The API server is the only one they
speak TLS with: to load every authority of the image as well would be a tenth of their start. */}}
{{- define "bireme.environment" -}}
- name: BIREME_CONFIG
  value: /etc/bireme/settings.yaml
- name: OMP_NUM_THREADS  # many small arrays: threads would only wait for each other
  value: "1"
- name: SSL_CERT_FILE  # the cluster's own authority alone is trusted
  value: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
{{- end -}}

{{/* Names of the secrets that images are pulled with. */}}
{{- define "bireme.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Where the pods of a component may go: (list $ "operator" .Values.operator). */}}
{{- define "bireme.placing" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := index . 2 -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "bireme.selector" (list $root $component) | nindent 8 }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The settings file of operator and extender: what the chart must set, over what values say. */}}
{{- define "bireme.settings" -}}
{{- $progress := .Values.operator.progress -}}
{{- $operator := dict "leaseNamespace" .Release.Namespace "metricsHost" "0.0.0.0" "metricsPort" 8080 -}}
{{- if $progress.enabled -}}
{{- $scheme := ternary "https" "http" (ne $progress.certificateSecret "") -}}
{{- $url := printf "%s://%s-progress.%s.svc:8082" $scheme (include "bireme.name" .) .Release.Namespace -}}
{{- $operator = merge (dict "progressUrl" $url "progressHost" "0.0.0.0" "progressPort" 8082) $operator -}}
{{- if $progress.certificateSecret -}}
{{- $operator = merge (dict "progressCertFile" "/etc/bireme-progress/tls.crt" "progressKeyFile" "/etc/bireme-progress/tls.key") $operator -}}
{{- end -}}
{{- with $progress.caConfigMap -}}
{{- $operator = merge (dict "progressCaConfigMap" .) $operator -}}
{{- end -}}
{{- end -}}
{{- if .Values.operator.records.volume -}}
{{- $operator = merge (dict "recordDirectory" "/var/lib/bireme/records") $operator -}}
{{- end -}}
{{- $extender := dict "extenderHost" "127.0.0.1" "extenderPort" 8888 "metricsHost" "0.0.0.0" "metricsPort" 8889 -}}
{{- if .Values.checkpoints.volume -}}
{{- $_ := set $operator "checkpointDirectory" "/var/lib/bireme/checkpoints" -}}
{{- $_ := set $extender "checkpointDirectory" "/var/lib/bireme/checkpoints" -}}
{{- end -}}
{{- $all := dict "operator" (merge $operator (deepCopy .Values.operator.settings)) "extender" (merge $extender (deepCopy .Values.scheduler.extender.settings)) -}}
{{- with .Values.scheduling -}}
{{- $_ := set $all "scheduling" . -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* The scheduler's configuration: the file of the repository, with election where two compete. */}}
{{- define "bireme.schedulerConfig" -}}
{{- $config := .Files.Get "files/scheduler-config.yaml" | fromYaml -}}
{{- $election := dict "leaderElect" (gt (int .Values.scheduler.replicas) 1) "resourceName" "bireme-scheduler" "resourceNamespace" .Release.Namespace -}}
{{- $_ := set $config "leaderElection" $election -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Who the operator is to the API server. */}}
{{- define "bireme.operatorUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "bireme.name" . }}-operator
{{- end -}}

{{/* Whose requests the flow schemas take: the operator's, and the scheduler's and extender's. */}}
{{- define "bireme.flowSubjects" -}}
{{- range $number, $component := list "operator" "scheduler" }}
{{- if $number }}
{{ end -}}
- kind: ServiceAccount
  serviceAccount:
    name: {{ include "bireme.name" $ }}-{{ $component }}
    namespace: {{ $.Release.Namespace }}
{{- end }}
{{- end -}}
