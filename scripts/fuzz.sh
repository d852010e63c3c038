#!/usr/bin/env bash
# Fuzzes every target of the project, one after another, for the given time each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
found=0
packages=$(go list ./...)
for package in $packages; do
  listed=$(go test -list '^Fuzz' "$package") # on a line of its own: a package that doesn't compile ends it all
  for target in $(grep '^Fuzz' <<<"$listed" || true); do
    found=$((found + 1))
    echo "$package $target for $time"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
  done
done
echo "$found targets fuzzed"
test "$found" -gt 0
