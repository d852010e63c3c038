#!/usr/bin/env bash
# Checks the Helm chart, or an archive of it, $1, as far as that goes without a cluster: helm lints and renders it, and
# refuses values that would not work.
set -euo pipefail
chart=$(realpath "${1:-$(dirname "$0")/../packaging/helm/signalbox}")
tool=helm.sh/helm/v3/cmd/helm@v3.22.0
if ! command -v helm >/dev/null; then
  timeout 400 go run "$tool" version >/dev/null 2>&1 || { echo 'NOT CHECKED: the chart: there is no helm, and it could not be built here'; exit 0; }
  helm() { go run "$tool" "$@"; }
fi
good=(--set certificates.secret=nodes --set tokens.secret=tokens)
fail() { echo "FAILED: $*" >&2; exit 1; }

helm lint --strict "$chart" "${good[@]}"
rendered=$(helm template --kube-version 1.30.0 box "$chart" --namespace work "${good[@]}" --set 'allowHosts={box.example}' --set-string settings.SIGNALBOX_LOG_JSON=true)
for line in 'kind: StatefulSet' 'kind: PodDisruptionBudget' 'clusterIP: None' 'publishNotReadyAddresses: true' \
  'value: "box-signalbox-0=box-signalbox-0.box-signalbox-peers.work.svc:8711,box-signalbox-1=box-signalbox-1.box-signalbox-peers.work.svc:8711,box-signalbox-2=box-signalbox-2.box-signalbox-peers.work.svc:8711"' \
  'box-signalbox-2.box-signalbox-peers.work.svc,box.example"' '{name: SIGNALBOX_LOG_JSON, value: "true"}' \
  '{name: SIGNALBOX_TOKENS, value: /tokens/tokens.toml}' 'image: "signalbox:'; do
  grep -qF -- "$line" <<<"$rendered" || fail "the chart does not render $line"
done
open=$(helm template --kube-version 1.30.0 box "$chart" --set certificates.secret=nodes --set insecure=true)
if grep -q SIGNALBOX_TOKENS <<<"$open" || ! grep -q SIGNALBOX_INSECURE_HTTP <<<"$open"; then fail 'insecure: true renders tokens'; fi
for bad in certificates.secret= tokens.secret= replicas=0 replicas=three settings.DATA=x storage.size=much sevice.port=1; do
  if output=$(helm template --kube-version 1.30.0 box "$chart" "${good[@]}" --set "$bad" 2>&1); then fail "the chart takes $bad"; fi
  grep -q "values don't meet the specifications of the schema" <<<"$output" || fail "$bad: $output"
done
echo 'the chart renders, and refuses 7 mistakes'
