#!/usr/bin/env bash
# Fuzzes every target of the project, one after another, for the given time each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
found=0
for package in $(go list ./...); do
  for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
    found=$((found + 1))
    echo "$package $target for $time"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
  done
done
echo "$found targets fuzzed"
test "$found" -gt 0
