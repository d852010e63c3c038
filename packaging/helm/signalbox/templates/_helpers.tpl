{{- define "signalbox.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "signalbox" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-signalbox" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "signalbox.selector" -}}
app.kubernetes.io/name: signalbox
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "signalbox.labels" -}}
{{ include "signalbox.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The name below which the headless service resolves each pod. */}}
{{- define "signalbox.domain" -}}
{{ include "signalbox.name" . }}-peers.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The list of all first members: the same on each node. */}}
{{- define "signalbox.peers" -}}
{{- $name := include "signalbox.name" . -}}
{{- $domain := include "signalbox.domain" . -}}
{{- range $i := until (int .Values.replicas) -}}
{{- if $i }},{{ end }}{{ $name }}-{{ $i }}={{ $name }}-{{ $i }}.{{ $domain }}:8711
{{- end -}}
{{- end -}}

{{/* The names by which clients call the nodes. */}}
{{- define "signalbox.hosts" -}}
{{- $name := include "signalbox.name" . -}}
{{- $domain := include "signalbox.domain" . -}}
{{- $namespace := .Release.Namespace -}}
{{- $hosts := list "localhost" $name (printf "%s.%s" $name $namespace) (printf "%s.%s.svc" $name $namespace) (printf "%s.%s.svc.cluster.local" $name $namespace) -}}
{{- range $i := until (int .Values.replicas) -}}
{{- $hosts = append $hosts (printf "%s-%d.%s" $name $i $domain) -}}
{{- end -}}
{{- concat $hosts .Values.allowHosts | join "," -}}
{{- end -}}
