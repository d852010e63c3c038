#!/usr/bin/env bash
# Checks the alert rules, their examples, the scrape job, and every expression of the dashboard with
# Prometheus' promtool, which Debian has in the package prometheus.
set -euo pipefail
cd "$(dirname "$0")/../packaging"
promtool check rules prometheus/alerts.yaml
promtool test rules prometheus/alerts_test.yaml
promtool check config --syntax-only prometheus/scrape.yaml
rules=$(mktemp) count=0
trap 'rm -f "$rules"' EXIT
printf 'groups:\n  - name: dashboard\n    rules:\n' >"$rules"
sed -n 's/^ *"expr": "\(.*\)",\{0,1\}$/\1/p' grafana/signalbox.json |
  sed -e 's/\\"/"/g' -e 's/\$__rate_interval/5m/g' -e 's/\$\(job\|semaphore\)/x/g' |
  while IFS= read -r expression; do
    printf "      - record: dashboard:%s\n        expr: '%s'\n" "$((++count))" "$expression"
  done >>"$rules"
test "$(grep -c expr: "$rules")" = "$(grep -c '"expr":' grafana/signalbox.json)"
promtool check rules "$rules"
