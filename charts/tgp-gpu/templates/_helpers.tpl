{{/* Whatever is wrong with the values together, in one message each; values.schema.json has looked at each alone. */}}
{{- define "tgp.check" -}}
{{- if ne .Release.Namespace "tgp-system" }}
{{- fail (printf "The release must be in the namespace tgp-system, where the playbooks keep their records; this is %s. Install with --namespace tgp-system --create-namespace." .Release.Namespace) }}
{{- end }}
{{- if not (include "tgp.runs" . | fromYamlArray) }}
{{- fail "Nothing would run. Set reap.enabled or autoscale.enabled, or mode: loop." }}
{{- end }}
{{- if and .Values.metrics.enabled (ne (include "tgp.mode" .) "loop") }}
{{- fail "metrics.enabled opens a port of the loop, and no loop runs. Set mode: loop, or give TGP_METRICS_PUSH_URL in a Secret of secrets.environment." }}
{{- end }}
{{- if and .Values.networking.tailscale.operatorEnabled (not (has .Values.networking.backend (list "" "tailscale"))) }}
{{- fail (printf "networking.tailscale.operatorEnabled has no effect with networking.backend %s. Remove one of the two." .Values.networking.backend) }}
{{- end }}
{{- end }}

{{- define "tgp.fromCluster" -}}
{{- $others := or .Values.documents.inline .Values.documents.configMap .Values.nodeGroups }}
{{- if kindIs "bool" .Values.documents.fromCluster }}{{ .Values.documents.fromCluster }}{{ else }}{{ not $others }}{{ end }}
{{- end }}

{{- define "tgp.mode" -}}
{{- if ne .Values.mode "auto" }}{{ .Values.mode }}{{ else if .Values.nodeGroups }}loop{{ else }}schedule{{ end }}
{{- end }}

{{/* The playbooks that run by themselves, as a YAML list. */}}
{{- define "tgp.runs" -}}
{{- if eq (include "tgp.mode" .) "loop" -}}
[autoscale]
{{- else -}}
[{{ if .Values.reap.enabled }}reap{{ end }}{{ if and .Values.reap.enabled .Values.autoscale.enabled }}, {{ end }}{{ if .Values.autoscale.enabled }}autoscale{{ end }}]
{{- end }}
{{- end }}

{{/* The playbooks that have an account: those that run, that of the hook before an uninstall, and those asked for. */}}
{{- define "tgp.accounts" -}}
{{- $names := concat (include "tgp.runs" . | fromYamlArray) .Values.rbac.playbooks }}
{{- if .Values.uninstall.refuseWhileMachinesRun }}{{ $names = append $names "status" }}{{ end }}
{{- $names | uniq | sortAlpha | toYaml }}
{{- end }}

{{/* The playbook whose account helm test runs with: the one that may do most. */}}
{{- define "tgp.main" -}}
{{- include "tgp.runs" . | fromYamlArray | last }}
{{- end }}

{{/* "true" where all documents are known here and describe own machines that are switched on and off, and nothing else. */}}
{{- define "tgp.ownMachinesOnly" -}}
{{- $own := not (or .Values.documents.configMap (eq (include "tgp.fromCluster" .) "true")) }}
{{- range .Values.documents.inline }}
{{- if eq .kind "GPURequest" }}{{ $own = false }}{{ end }}
{{- if eq .kind "GPUNodeClass" }}
{{- range (dig "spec" "providers" list .) }}
{{- if and (dig "enabled" true .) (or (ne .name "webhook") (ne (dig "settings" "payload" "none" .) "none")) }}{{ $own = false }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- $own }}
{{- end }}

{{- define "tgp.tokens" -}}
{{- if kindIs "bool" .Values.rbac.bootstrapTokens }}{{ .Values.rbac.bootstrapTokens }}{{ else }}{{ ne (include "tgp.ownMachinesOnly" .) "true" }}{{ end }}
{{- end }}

{{- define "tgp.readsSecrets" -}}
{{- $text := toJson .Values.documents.inline }}
{{- if kindIs "bool" .Values.rbac.secrets }}{{ .Values.rbac.secrets }}
{{- else }}{{ or (ne (include "tgp.ownMachinesOnly" .) "true") (contains "\"credentialsRef\":" $text) (contains "\"templateRef\":" $text) }}{{ end }}
{{- end }}

{{- define "tgp.tests" -}}
{{- if kindIs "bool" .Values.rbac.acceptance }}{{ .Values.rbac.acceptance }}
{{- else }}{{ contains "\"acceptance\":" (toJson .Values.documents.inline) }}{{ end }}
{{- end }}

{{- define "tgp.prePulls" -}}
{{- if kindIs "bool" .Values.rbac.prePull }}{{ .Values.rbac.prePull }}
{{- else }}{{ contains "\"prePull\":" (toJson .Values.documents.inline) }}{{ end }}
{{- end }}

{{- define "tgp.readsUtilization" -}}
{{- $text := toJson .Values.documents.inline }}
{{- if kindIs "bool" .Values.rbac.utilization }}{{ .Values.rbac.utilization }}
{{- else }}{{ or (contains "\"idleSignal\":\"utilization\"" $text) (contains "\"idleSignal\":\"both\"" $text) (contains "\"xids\":" $text) }}{{ end }}
{{- end }}

{{- define "tgp.readsDevices" -}}
{{- if kindIs "bool" .Values.rbac.devices }}{{ .Values.rbac.devices }}
{{- else }}{{ contains "\"draDriver\":" (toJson .Values.documents.inline) }}{{ end }}
{{- end }}

{{- define "tgp.readsRequests" -}}
{{- if kindIs "bool" .Values.rbac.provisioningRequests }}{{ .Values.rbac.provisioningRequests }}
{{- else }}{{ contains "\"provisioningClasses\":" (toJson .Values.documents.inline) }}{{ end }}
{{- end }}

{{- define "tgp.readsBuffers" -}}
{{- if kindIs "bool" .Values.rbac.capacityBuffers }}{{ .Values.rbac.capacityBuffers }}
{{- else }}{{ contains "\"capacityBuffers\":true" (toJson .Values.documents.inline) }}{{ end }}
{{- end }}

{{- define "tgp.readsHubs" -}}
{{- if kindIs "bool" .Values.rbac.hubSecrets }}{{ .Values.rbac.hubSecrets }}
{{- else }}{{ contains "SecretRef\":" (toJson .Values.documents.inline) }}{{ end }}
{{- end }}

{{/* The features of needed_rights.py that this release uses. */}}
{{- define "tgp.features" -}}
{{- $features := list "" "claims" }}
{{- if eq (toString .Values.options.claim_store) "crd" }}{{ $features = append $features "node_claims" }}{{ end }}
{{- if eq (include "tgp.tokens" .) "true" }}{{ $features = append $features "tokens" }}{{ end }}
{{- if eq (include "tgp.readsSecrets" .) "true" }}{{ $features = append $features "secrets" }}{{ end }}
{{- if eq (include "tgp.fromCluster" .) "true" }}{{ $features = append $features "objects" }}{{ end }}
{{- if eq (include "tgp.tests" .) "true" }}{{ $features = append $features "acceptance" }}{{ end }}
{{- if eq (include "tgp.prePulls" .) "true" }}{{ $features = append $features "pre_pull" }}{{ end }}
{{- if eq (include "tgp.readsUtilization" .) "true" }}{{ $features = append $features "utilization" }}{{ end }}
{{- if eq (include "tgp.readsDevices" .) "true" }}{{ $features = append $features "devices" }}{{ end }}
{{- if eq (include "tgp.readsRequests" .) "true" }}{{ $features = append $features "provisioning_requests" }}{{ end }}
{{- if eq (include "tgp.readsBuffers" .) "true" }}{{ $features = append $features "capacity_buffers" }}{{ end }}
{{- if .Values.guard.enabled }}{{ $features = append $features "guard" }}{{ end }}
{{- if eq (include "tgp.readsHubs" .) "true" }}{{ $features = append $features "hub_secrets" }}{{ end }}
{{- if .Values.options.namespace_teams }}{{ $features = append $features "namespaces" }}{{ end }}
{{- if .Values.rbac.serviceNamespaces }}{{ $features = append $features "services" }}{{ end }}
{{- $features | toYaml }}
{{- end }}

{{/* "true" unless an object of the whole cluster is there already and belongs to another owner, as one of files/rbac.yml: (list $ apiVersion kind name). */}}
{{- define "tgp.ours" -}}
{{- $root := first . }}
{{- $there := lookup (index . 1) (index . 2) "" (index . 3) }}
{{- or (not $there) (eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $there) $root.Release.Name) }}
{{- end }}

{{- define "tgp.labels" -}}
app.kubernetes.io/name: tgp-gpu
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tgp.podLabels" -}}
app.kubernetes.io/name: tgp-gpu
app.kubernetes.io/instance: {{ .Release.Name }}
{{- with .Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The documents as paths in the pod. */}}
{{- define "tgp.paths" -}}
{{- $paths := list }}
{{- if .Values.documents.configMap }}{{ $paths = append $paths "/etc/tgp/documents" }}{{ end }}
{{- if .Values.documents.inline }}{{ $paths = append $paths "/etc/tgp/release/documents.yml" }}{{ end }}
{{- if .Values.nodeGroups }}{{ $paths = append $paths "/etc/tgp/release/groups.yml" }}{{ end }}
{{- $paths | toYaml }}
{{- end }}

{{/* The extra variables of a run as JSON: (dict "root" $ "options" … "more" …). */}}
{{- define "tgp.variables" -}}
{{- $root := .root }}
{{- $options := merge (dict) (.options | default dict) $root.Values.options }}
{{- if eq (include "tgp.fromCluster" $root) "true" }}{{ $_ := set $options "documents_from_cluster" true }}{{ end }}
{{- if ne (include "tgp.readsSecrets" $root) "true" }}{{ $_ := set $options "credentials_secret" "" }}{{ end }}
{{- $variables := merge (dict) (.more | default dict) }}
{{- with include "tgp.paths" $root | fromYamlArray }}{{ $_ := set $variables "tgp_documents" . }}{{ end }}
{{- with $options }}{{ $_ := set $variables "tgp_options" . }}{{ end }}
{{- toJson $variables }}
{{- end }}

{{/* A pod of the release: (dict "root" $ "name" … "account" … "args" … "restart" …). It satisfies the pod security standard "restricted". */}}
{{- define "tgp.pod" -}}
{{- $root := .root }}
{{- $values := $root.Values }}
serviceAccountName: tgp-gpu-{{ .account }}
restartPolicy: {{ .restart | default "Never" }}
{{- with .grace }}
terminationGracePeriodSeconds: {{ . }}
{{- end }}
{{- with $values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
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
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: {{ .name }}
    image: "{{ $values.image.repository }}:{{ $values.image.tag | default $root.Chart.AppVersion }}"
    imagePullPolicy: {{ $values.image.pullPolicy }}
    command:
      {{- toYaml .command | nindent 6 }}
    env:
      - name: HOME
        value: /tmp
      - name: TGP_STATE_DIR
        value: /tmp/tgp
      - name: ANSIBLE_LOCALHOST_WARNING
        value: "false"
      - name: ANSIBLE_INVENTORY_UNPARSED_WARNING
        value: "false"
      - name: PYTHONUNBUFFERED
        value: "1"
      {{- if $values.secrets.talos.name }}
      - name: TGP_TALOS_SECRETS
        value: /etc/tgp/talos/{{ $values.secrets.talos.key }}
      {{- end }}
      {{- if .metrics }}
      - name: TGP_METRICS_LISTEN
        value: "0.0.0.0:{{ $values.metrics.port }}"
      {{- end }}
      {{- range $name, $value := $values.env }}
      - name: {{ $name }}
        value: {{ $value | quote }}
      {{- end }}
    {{- with $values.secrets.environment }}
    envFrom:
      {{- range . }}
      - secretRef:
          name: {{ . }}
      {{- end }}
    {{- end }}
    {{- if .metrics }}
    ports:
      - name: metrics
        containerPort: {{ $values.metrics.port }}
    {{- end }}
    resources:
      {{- toYaml $values.resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    volumeMounts:
      - name: release
        mountPath: /etc/tgp/release
        readOnly: true
      {{- if $values.documents.configMap }}
      - name: documents
        mountPath: /etc/tgp/documents
        readOnly: true
      {{- end }}
      {{- if $values.secrets.talos.name }}
      - name: talos
        mountPath: /etc/tgp/talos
        readOnly: true
      {{- end }}
      - name: tmp
        mountPath: /tmp
volumes:
  - name: release
    configMap:
      name: tgp-gpu
  {{- if $values.documents.configMap }}
  - name: documents
    configMap:
      name: {{ $values.documents.configMap }}
  {{- end }}
  {{- if $values.secrets.talos.name }}
  - name: talos
    secret:
      secretName: {{ $values.secrets.talos.name }}
  {{- end }}
  - name: tmp
    emptyDir: {}
{{- end }}
