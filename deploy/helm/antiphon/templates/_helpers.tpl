{{- define "antiphon.name" -}}
{{- .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "antiphon.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "antiphon.selector" -}}
app.kubernetes.io/name: {{ include "antiphon.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "antiphon.labels" -}}
{{ include "antiphon.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "antiphon.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "antiphon.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* "true" where a database server is used, which any number of pods can share. */}}
{{- define "antiphon.shared" -}}
{{- if or .Values.store.existingSecret (hasPrefix "postgresql" .Values.store.url) -}}true{{- end -}}
{{- end -}}

{{- define "antiphon.adminSecret" -}}
{{- default (include "antiphon.fullname" .) .Values.admin.existingSecret -}}
{{- end -}}

{{- define "antiphon.adminKey" -}}
{{- if .Values.admin.existingSecret -}}{{ .Values.admin.existingSecretKey }}{{- else -}}admin-token{{- end -}}
{{- end -}}

{{/* What cannot work is refused before anything is installed. */}}
{{- define "antiphon.check" -}}
{{- if and (not (include "antiphon.shared" .)) (or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled) -}}
{{- fail "More than one pod needs PostgreSQL: an SQLite file belongs to one proxy. Set store.url (postgresql+psycopg://…) or store.existingSecret, or replicas=1 and autoscaling.enabled=false." -}}
{{- end -}}
{{- if and .Values.store.url (not (hasPrefix "postgresql" .Values.store.url)) (not (hasPrefix "sqlite" .Values.store.url)) -}}
{{- fail "store.url must begin with postgresql+psycopg:// or sqlite:///" -}}
{{- end -}}
{{- if hasKey .Values.settings "admin" -}}
{{- fail "The admin token is a secret: set admin.token or admin.existingSecret, not settings.admin." -}}
{{- end -}}
{{- end -}}
