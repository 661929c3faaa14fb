{{/* Helm has one list of templates for a chart and all charts that are beside it, hence the prefix of every name here.
     Values are read as (.Values.x).y, because `helm upgrade --reuse-values` from upstream's chart leaves out those that are new here. */}}

{{/* "true" if cluster profiles are published: by the value, or by its name in upstream's releases before v0.11.0. */}}
{{- define "cluster-proxy.clusterProfile" -}}
{{- if or (.Values.featureGates).clusterProfile (.Values.featureGates).clusterProfileAccessProvider }}true{{ end }}
{{- end }}

{{/* The image of a release has a digest, which is the chart's and no value: --reuse-values would keep that of the release before. */}}
{{- define "cluster-proxy.tag" -}}
{{- if .Values.tag -}}
{{ .Values.tag }}
{{- else -}}
v{{ .Chart.Version }}{{ with index .Chart.Annotations "proxy.open-cluster-management.io/image-digest" }}@{{ . }}{{ end }}
{{- end -}}
{{- end }}

{{- define "cluster-proxy.image" -}}
{{ .Values.registry }}/{{ .Values.image }}:{{ include "cluster-proxy.tag" . }}
{{- end }}

{{/* An image of its own: the chart's tag is added unless it has a tag or digest. Empty, or what upstream's chart has by default,
     means that of the other processes. Call with (list . image). */}}
{{- define "cluster-proxy.tagged" -}}
{{- $image := index . 1 -}}
{{- if or (not $image) (eq $image "quay.io/open-cluster-management/cluster-proxy") -}}
{{ include "cluster-proxy.image" (index . 0) }}
{{- else if or (contains "@" $image) (contains ":" (last (splitList "/" $image))) -}}
{{ $image }}
{{- else -}}
{{ $image }}:{{ include "cluster-proxy.tag" (index . 0) }}
{{- end -}}
{{- end }}

{{- define "cluster-proxy.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The name of the MultiClusterEngine to which an object belongs, by the marks of its operator. Call with what lookup found. */}}
{{- define "cluster-proxy.engine" -}}
{{- $metadata := (. | default dict).metadata | default dict -}}
{{- $engine := get ($metadata.labels | default dict) "backplaneconfig.name" -}}
{{- range $metadata.ownerReferences | default list -}}
{{- if eq .kind "MultiClusterEngine" -}}
{{- $engine = .name -}}
{{- end -}}
{{- end -}}
{{- $engine -}}
{{- end }}

{{/* The labels by which everything selects the pods of a component. Call with the component. */}}
{{- define "cluster-proxy.selector" -}}
open-cluster-management.io/addon: cluster-proxy
component: {{ . }}
{{- end }}

{{/* The selector of a Deployment cannot be changed, and not all of upstream's releases had the same: one that is there
     stays. Call with (list . deployment component). */}}
{{- define "cluster-proxy.deploymentSelector" -}}
{{- $live := lookup "apps/v1" "Deployment" (index . 0).Release.Namespace (index . 1) | default dict -}}
{{- $said := dig "deploymentSelectors" (index . 1) dict ((index . 0).Values.withoutLookup | default dict) -}}
{{- $default := $said | default (include "cluster-proxy.selector" (index . 2) | fromYaml) -}}
{{- dig "spec" "selector" "matchLabels" $default $live | toYaml -}}
{{- end }}

{{/* "true" while the Deployment of the proxy API is upstream's, whose containers have a command. */}}
{{- define "cluster-proxy.upstreamsUserServer" -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace "cluster-proxy-addon-user" | default dict -}}
{{- $commands := list -}}
{{- range dig "spec" "template" "spec" "containers" list $live -}}
{{- $commands = concat $commands (.command | default list) -}}
{{- end -}}
{{- gt (len $commands) 0 -}}
{{- end }}

{{/* Call with (list . deployment component). */}}
{{- define "cluster-proxy.podMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- /* The commands in OCM's documentation find pods by the label app; nothing here selects by it. */}}
  {{- merge (include "cluster-proxy.selector" (index . 2) | fromYaml) (include "cluster-proxy.deploymentSelector" . | fromYaml) ($root.Values.podLabels | default dict) (dict "app" "cluster-proxy") | toYaml | nindent 2 }}
{{- with $root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* "true" if the hub (Kubernetes 1.30 and later) has policies that keep agents to the proxy servers' pods. */}}
{{- define "cluster-proxy.portForwardPolicy" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}

{{/* Who has access to all clusters, as the addon manager reads it; empty if nobody has. */}}
{{- define "cluster-proxy.access" -}}
{{- $access := .Values.access | default dict -}}
{{- if or $access.users $access.groups -}}
{{ dict "users" ($access.users | default list) "groups" ($access.groups | default list) "clusterRole" ($access.clusterRole | default "view") | toJson }}
{{- end }}
{{- end }}

{{/* "true" if users of this hub may be let make passes. */}}
{{- define "cluster-proxy.passes" -}}
{{- if and .Values.enableServiceProxy (dig "aggregatedAPI" true (.Values.proxyAPI | default dict)) (dig "enabled" true (.Values.passes | default dict)) (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}true{{ end }}
{{- end }}

{{/* There are images for Linux only. */}}
{{- define "cluster-proxy.nodeSelector" -}}
{{- toYaml (merge (dict) (.Values.nodeSelector | default dict) (dict "kubernetes.io/os" "linux")) }}
{{- end }}

{{/* What all pods of the chart have in common, the pod's securityContext last. Call with (list . component). */}}
{{- define "cluster-proxy.podSpec" -}}
{{- $root := index . 0 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
nodeSelector:
  {{- include "cluster-proxy.nodeSelector" $root | nindent 2 }}
{{- with $root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
topologySpreadConstraints:
{{- if $root.Values.topologySpreadConstraints }}
  {{- toYaml $root.Values.topologySpreadConstraints | nindent 2 }}
{{- else }}
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "cluster-proxy.selector" (index $ 1) | nindent 8 }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "cluster-proxy.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "cluster-proxy.env" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- with include "cluster-proxy.proxyEnv" . | trim }}
{{ . }}
{{- end }}
{{- end }}

{{- define "cluster-proxy.proxyEnv" -}}
{{- with .Values.proxyConfig }}
{{- with .httpProxy }}
- name: HTTP_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with .httpsProxy }}
- name: HTTPS_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with .noProxy }}
- name: NO_PROXY
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the addon manager is told of the proxy servers' pods, which it makes; the ManagedProxyConfiguration has the rest. */}}
{{- define "cluster-proxy.proxyServerPods" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (.Values.resources).proxyServer }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podLabels }}
labels:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "cluster-proxy.proxyEnv" . | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- end }}
{{- /* Go's garbage collector works harder when memory comes near the limit that it is told of. */}}
{{- define "cluster-proxy.memoryLimit" -}}
{{- if dig "limits" "memory" "" (. | default dict) -}}
- name: GOMEMLIMIT
  valueFrom:
    resourceFieldRef:
      resource: limits.memory
{{- end }}
{{- end }}

{{/* The flags of logging, one in a line; none with the values that the processes have anyway. */}}
{{- define "cluster-proxy.loggingArgs" -}}
{{- with (.Values.logging).level }}
- --v={{ . | int }}
{{- end }}
{{- if eq ((.Values.logging).format | default "text") "json" }}
- --logging-format=json
{{- end }}
{{- end }}

{{/* What is added to the arguments of a process, one in a line. Call with (list . process). */}}
{{- define "cluster-proxy.moreArgs" -}}
{{- include "cluster-proxy.loggingArgs" (index . 0) }}
{{- range index ((index . 0).Values.extraArgs | default dict) (index . 1) }}
- {{ . | quote }}
{{- end }}
{{- end }}
