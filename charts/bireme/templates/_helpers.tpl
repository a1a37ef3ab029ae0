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
