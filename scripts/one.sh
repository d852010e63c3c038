#!/usr/bin/env bash
# Runs one test, in whichever package has it: scripts/one.sh TestX
set -euo pipefail
cd "$(dirname "$0")/.."
test=${1:-}
if [ -z "$test" ]; then
  echo 'which test? make one T=TestX' >&2
  exit 2
fi
packages=$({ grep -rl --include='*_test.go' "^func $test(" . || true; } | xargs -r -n1 dirname | sort -u |
  sed 's#^\./client\b#github.com/signalbox/signalbox/client#') # another module
if [ -z "$packages" ]; then
  echo "no test is called $test" >&2
  exit 2
fi
output=$(mktemp)
trap 'rm -f "$output"' EXIT
# shellcheck disable=SC2086 # one word a package
go test -count 1 -v -tags processes,compose,browser -run "^$test\$" $packages | tee "$output"
if ! grep -q '^=== RUN' "$output"; then
  echo "$test did not run: see the build tags of its file" >&2
  exit 1
fi
