#!/usr/bin/env bash
# Fuzzes every target of the packages in the given folders (all), one after another: for the given time each (30s),
# or for so many inputs (1000x), which CI takes: go test fails now and then when its time ends
# in the middle of an input ("context deadline exceeded").
set -euo pipefail
cd "$(dirname "$0")/.."
amount=${1:-30s}
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
corpus=$(go env GOCACHE)/fuzz
found=0
shift || true
packages=$(grep -rlE --include='*_test.go' '^func Fuzz' "${@:-.}" | xargs -n1 dirname | sort -u)
for package in $packages; do
  go -C "$package" test -c -fuzz . -o "$built/fuzz" . # once a package, with the counters that lead the fuzzer
  targets=$(cd "$package" && "$built/fuzz" -test.list '^Fuzz') # on a line of its own: a failure ends it all
  for target in $targets; do
    found=$((found + 1))
    echo "$package $target for $amount"
    (cd "$package" && "$built/fuzz" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$amount" \
      -test.fuzzminimizetime 100x -test.fuzzcachedir "$corpus/$package")
  done
done
echo "$found targets fuzzed"
test "$found" -gt 0
