{{/* The chart's name, in labels and names. */}}
{{- define "bireme.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* What the names of a release's objects begin with: its name, with the chart's unless it has that in
it. Short enough for what comes after it. */}}
{{- define "bireme.fullname" -}}
{{- $name := include "bireme.name" . -}}
{{- $usual := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $usual | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Where the namespaced objects of a release are. */}}
{{- define "bireme.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* Labels that select the pods of one component: (list $ "forecast"). They never change. */}}
{{- define "bireme.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "bireme.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of the objects of one component: (list $ "forecast"). */}}
{{- define "bireme.labels" -}}
{{- $root := index . 0 -}}
{{ include "bireme.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: bireme
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image of Bireme's own: (list $ .Values.operator.image). */}}
{{- define "bireme.image" -}}
{{- $root := index . 0 -}}
{{- $tag := $root.Values.image.tag | default $root.Chart.AppVersion -}}
{{- $common := dict "registry" $root.Values.image.registry "tag" $tag -}}
{{- include "bireme.imageReference" (list $root (merge $common (index . 1))) -}}
{{- end -}}

{{/* The image of the stock kube-scheduler, in the cluster's own version unless values name another. */}}
{{- define "bireme.schedulerImage" -}}
{{- $own := regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version -}}
{{- include "bireme.imageReference" (list . (merge (deepCopy .Values.scheduler.image) (dict "tag" $own))) -}}
{{- end -}}

{{/* An image as pods name it; a digest wins over a tag: (list $ .Values.scheduler.image). */}}
{{- define "bireme.imageReference" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.global.imageRegistry | default $image.registry }}{{ . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag }}{{ end -}}
{{- end -}}

{{/* The secrets that images are pulled with. */}}
{{- define "bireme.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets | uniq -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The security context of a component's pods: (list $ .Values.operator). */}}
{{- define "bireme.podSecurity" -}}
{{- $root := index . 0 -}}
{{- toYaml (mergeOverwrite (deepCopy $root.Values.podSecurityContext) (index . 1).podSecurityContext) -}}
{{- end -}}

{{/* The security context of a component's container: (list $ .Values.operator). */}}
{{- define "bireme.containerSecurity" -}}
{{- $root := index . 0 -}}
{{- toYaml (mergeOverwrite (deepCopy $root.Values.containerSecurityContext) (index . 1).containerSecurityContext) -}}
{{- end -}}

{{/* The service account of a component: (list $ "operator" .Values.operator). */}}
{{- define "bireme.serviceAccount" -}}
{{- $component := index . 1 -}}
{{- $account := (index . 2).serviceAccount -}}
{{- if $account.create -}}
{{- $account.name | default (printf "%s-%s" (include "bireme.fullname" (index . 0)) $component) -}}
{{- else -}}
{{- required (printf "%s.serviceAccount.name must name an account, as create is false" $component) $account.name -}}
{{- end -}}
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

{{/* Which nodes the pods of a component go to, and before whom: (list $ "operator" .Values.operator). */}}
{{- define "bireme.placing" -}}
{{- $own := dict "labelSelector" (dict "matchLabels" (include "bireme.selector" . | fromYaml)) -}}
{{- with index . 2 -}}
{{- with .priorityClassName -}}
priorityClassName: {{ . }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ ternary . (merge (deepCopy .) $own) (hasKey . "labelSelector") | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The settings file of operator and extender: what the chart must set, over what values say. */}}
{{- define "bireme.settings" -}}
{{- $progress := .Values.operator.progress -}}
{{- $observes := eq .Values.operator.mode "Observe" -}}
{{- $operator := dict "mode" .Values.operator.mode "leaseNamespace" (include "bireme.namespace" .) "metricsAddress" "0.0.0.0:8080" -}}
{{- if and $progress.enabled (not $observes) -}}
{{- $scheme := ternary "https" "http" (ne $progress.certificateSecret "") -}}
{{- $url := printf "%s://%s-progress.%s.svc:8082" $scheme (include "bireme.fullname" .) (include "bireme.namespace" .) -}}
{{- $folder := ternary "/etc/bireme-progress" "" (ne $progress.certificateSecret "") -}}
{{- $address := printf "%s://0.0.0.0:8082%s" $scheme $folder -}}
{{- $operator = merge (dict "progressUrl" $url "progressAddress" $address) $operator -}}
{{- with $progress.caConfigMap -}}
{{- $operator = merge (dict "progressCaConfigMap" .) $operator -}}
{{- end -}}
{{- end -}}
{{- if .Values.operator.records.volume -}}
{{- $operator = merge (dict "recordDirectory" "/var/lib/bireme/records") $operator -}}
{{- end -}}
{{- $extender := dict "extenderAddress" "127.0.0.1:8888" "metricsAddress" "0.0.0.0:8889" -}}
{{- $program := deepCopy .Values.program -}}
{{- if .Values.checkpoints.volume -}}
{{- $_ := set $program "checkpointDirectory" "/var/lib/bireme/checkpoints" -}}
{{- end -}}
{{- $all := dict "operator" (merge $operator (deepCopy .Values.operator.settings)) "extender" $extender -}}
{{- with $program -}}
{{- $_ := set $all "program" . -}}
{{- end -}}
{{- with .Values.scheduling -}}
{{- $_ := set $all "scheduling" . -}}
{{- end -}}
{{- if and .Values.defaultQueue.create (not $observes) -}}
{{- $_ := set $all "defaultQueue" .Values.defaultQueue.spec -}}
{{- end -}}
{{- if and .Values.learnedShadow.create (not $observes) -}}
{{- $_ := set $all "learnedShadow" .Values.learnedShadow.checkpoint -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* The scheduler's configuration: the file of the repository, with its Lease beside the operator's. */}}
{{- define "bireme.schedulerConfig" -}}
{{- $config := .Files.Get "files/scheduler-config.yaml" | fromYaml -}}
{{- $_ := set $config.leaderElection "resourceNamespace" (include "bireme.namespace" .) -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Who a component is to the API server: (list $ "forecast" .Values.forecast). */}}
{{- define "bireme.accountUser" -}}
system:serviceaccount:{{ include "bireme.namespace" (index . 0) }}:{{ include "bireme.serviceAccount" . }}
{{- end -}}

{{/* Who the operator is to the API server. */}}
{{- define "bireme.operatorUser" -}}
{{- include "bireme.accountUser" (list . "operator" .Values.operator) -}}
{{- end -}}

{{/* Names in which * stands for any text, as the regular expression that one of them matches. */}}
{{- define "bireme.glob" -}}
{{- $names := list -}}
{{- range . -}}
{{- $names = append $names (regexQuoteMeta . | replace "\\*" ".*") -}}
{{- end -}}
^(?:{{ join "|" $names }})$
{{- end -}}

{{/* Whether a part of a pod asks for a listed resource, in CEL: (list "each" "^(?:.*)$"). */}}
{{- define "bireme.asks" -}}
{{- $part := index . 0 -}}
{{- $listed := index . 1 -}}
(has({{ $part }}.resources) && (
{{- range $number, $kind := list "requests" "limits" -}}
{{- $amounts := printf "%s.resources.%s" $part $kind -}}
{{ ternary " || " "" (gt $number 0) }}(has({{ $amounts }}) && {{ $amounts }}.exists(name, name.matches(r'{{ $listed }}') && string({{ $amounts }}[name]) != '0'))
{{- end -}}
))
{{- end -}}

{{/* All resources through which labels of a namespace can be written. */}}
{{- define "bireme.namespaceResources" -}}
[namespaces, namespaces/status, namespaces/finalize]
{{- end -}}

{{/* All resources that bind a pod, and write its labels from 1.35 on. */}}
{{- define "bireme.bindingResources" -}}
[pods/binding, bindings]
{{- end -}}

{{/* What the pods of helm test run, and nothing else. */}}
{{- define "bireme.testCommand" -}}
['python', '-c', 'print("one of two")']
{{- end -}}

{{/* Whose requests the flow schemas take: the operator's, and the scheduler's and extender's. */}}
{{- define "bireme.flowSubjects" -}}
{{- range $number, $component := list "operator" "scheduler" }}
{{- if $number }}
{{ end -}}
- kind: ServiceAccount
  serviceAccount:
    name: {{ include "bireme.serviceAccount" (list $ $component (get $.Values $component)) }}
    namespace: {{ include "bireme.namespace" $ }}
{{- end }}
{{- end -}}

{{/* Whether a right was given to the caller by its name, in CEL: (list "clusterclaims" "operate"). Only
cluster administrators give it, as it is asked for in the whole cluster. A user with every verb was
given none by name, so administrators are no programs of Bireme. */}}
{{- define "bireme.hasRight" -}}
{{- $resource := printf "authorizer.group('bireme.dev').resource('%s')" (index . 0) -}}
({{ $resource }}.check('{{ index . 1 }}').allowed()
&& !{{ $resource }}.check('every-verb').allowed())
{{- end -}}

{{/* Whether the caller is the operator of any release, in CEL: the one that leads may be another's. */}}
{{- define "bireme.isOperator" -}}
{{- include "bireme.hasRight" (list "clusterclaims" "operate") -}}
{{- end -}}

{{/* The release that owns an object of the whole cluster, unless it is this one: (list $ $manifest).
Empty where there is none, and where no cluster is asked, as for helm template. */}}
{{- define "bireme.otherOwner" -}}
{{- $root := index . 0 -}}
{{- $manifest := index . 1 -}}
{{- $there := lookup $manifest.apiVersion $manifest.kind "" $manifest.metadata.name | default dict -}}
{{- $owner := ($there.metadata | default dict).annotations | default dict -}}
{{- with get $owner "meta.helm.sh/release-name" -}}
{{- $namespace := get $owner "meta.helm.sh/release-namespace" -}}
{{- if or (ne . $root.Release.Name) (ne $namespace $root.Release.Namespace) -}}
{{ . }} in namespace {{ $namespace }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails beside a release of before the ClusterClaim, which elects among releases: both would lead.
Empty otherwise, and where no cluster is asked. */}}
{{- define "bireme.noOlderRelease" -}}
{{- $jobs := .Files.Get "files/crds/trainingjobs.yaml" | fromYaml -}}
{{- $claims := .Files.Get "files/crds/clusterclaims.yaml" | fromYaml -}}
{{- with include "bireme.otherOwner" (list . $jobs) -}}
{{- if not (lookup $claims.apiVersion $claims.kind "" $claims.metadata.name) -}}
{{- fail (printf "the cluster has the older release %s, beside which this one would lead as well: upgrade that release first, or name this one on its CustomResourceDefinitions if it is uninstalled (docs/operations.md, Uninstall)" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
