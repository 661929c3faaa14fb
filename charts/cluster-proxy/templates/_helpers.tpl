{{/* Values are read as (.Values.x).y, because `helm upgrade --reuse-values` from upstream's chart leaves out those that are new here. */}}

{{- define "tag" -}}
{{ .Values.tag | default (print "v" .Chart.Version) }}
{{- end }}

{{- define "image" -}}
{{ .Values.registry }}/{{ .Values.image }}:{{ include "tag" . }}
{{- end }}

{{/* An image of its own: the chart's tag is added unless it has a tag or digest. Call with (list . image). */}}
{{- define "tagged" -}}
{{- $image := index . 1 -}}
{{- if or (contains "@" $image) (contains ":" (last (splitList "/" $image))) -}}
{{ $image }}
{{- else -}}
{{ $image }}:{{ include "tag" (index . 0) }}
{{- end -}}
{{- end }}

{{- define "labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The labels by which everything selects the pods of a component. Call with the component. */}}
{{- define "selector" -}}
open-cluster-management.io/addon: cluster-proxy
component: {{ . }}
{{- end }}

{{/* The selector of a Deployment cannot be changed, and not all of upstream's releases had the same: one that is there
     stays. Call with (list . deployment component). */}}
{{- define "deploymentSelector" -}}
{{- $live := lookup "apps/v1" "Deployment" (index . 0).Release.Namespace (index . 1) | default dict -}}
{{- dig "spec" "selector" "matchLabels" (include "selector" (index . 2) | fromYaml) $live | toYaml -}}
{{- end }}

{{/* Call with (list . deployment component). */}}
{{- define "podMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- merge (include "selector" (index . 2) | fromYaml) (include "deploymentSelector" . | fromYaml) | toYaml | nindent 2 }}
  {{- with $root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* "true" if the hub (Kubernetes 1.30 and later) has policies that keep agents to the proxy servers' pods. */}}
{{- define "portForwardPolicy" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}

{{/* What all pods of the chart have in common. Call with (list . component). */}}
{{- define "podSpec" -}}
{{- $root := index . 0 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . }}
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
        {{- include "selector" (index $ 1) | nindent 8 }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "env" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
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
{{- define "proxyServerPods" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
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
{{- end }}
{{- /* Go's garbage collector works harder when memory comes near the limit that it is told of. */}}
{{- define "memoryLimit" -}}
{{- if dig "limits" "memory" "" (. | default dict) -}}
- name: GOMEMLIMIT
  valueFrom:
    resourceFieldRef:
      resource: limits.memory
{{- end }}
{{- end }}
