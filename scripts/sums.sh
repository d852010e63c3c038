#!/usr/bin/env bash
# Prints the sums of the tree, each beside its ceiling in test/rules/sums.txt, and fails if one is above it:
# scripts/sums.sh. With -write today's sums become the ceilings. The test of the sums runs this script.
set -euo pipefail
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/.."
ceilings=${CEILINGS:-test/rules/sums.txt}

go_files() { find . -path ./.git -prune -o -name '*.go' -print; }
shipped() { go_files | grep -vE '^\./(test|client/examples)/|_test\.go$'; }
shipped_others() { find client/python/signalbox httpapi/ui/static -type f ! -name '*.pyc'; }
tests() { go_files | grep -E '^\./test/|_test\.go$'; find client/python/tests -name '*.py'; }
docs() { find . -path ./.git -prune -o -name '*.md' -print; }
# machinery prints the files of packages outside of test/ that neither a program nor users import.
machinery() {
  local used client
  client=$(go list -m)/client/... # of this module or of another one
  used=$(go list -deps -f '{{.ImportPath}}' ./cmd/... "$client")
  go list -f '{{.ImportPath}} {{range .GoFiles}}{{$.Dir}}/{{.}} {{end}}' ./... "$client" | grep -v '^[^ ]*/signalbox/test/' |
    awk -v used="$used" 'BEGIN { n = split(used, u, "\n"); for (i = 1; i <= n; i++) known[u[i]] = 1 } !known[$1] { for (i = 2; i <= NF; i++) print $i }'
}
lines() { xargs -r cat | wc -l; }
comments() { xargs sed -nE 's#^(.*[[:space:]])?//(.*)#\2#p'; }
code() { xargs sed -E 's#(^|[[:space:]])//.*##; s/"([^"\\]|\\.)*"//g'; }
matches() { { grep -oE "$@" || true; } | wc -l; } # of a pattern, with options of grep

heads='\b(that of|those of|the one that|the one which|of its own|by itself|nobody|nothing|none)\b'
word='(is|of|most|own|said|given|asked|one)'
variables="\b$word\b(, *[A-Za-z_]\w*)* :=|, $word :=|\bvar $word\b|[(,] ?$word (\[\]|\*|map|func|chan|\.\.\.)?[A-Za-z]"
# A comparison with the feature level of the machine or of the cluster; *level is one of a semaphore.
levels='([^*]\blevel|\.feature|Level(\(\)|\.Load\(\))?)\)? [<>]=? |[<>]=? [A-Za-z.]*([lL]evel|feature)\b'

sums() {
  echo "$({ shipped; shipped_others; } | lines) shipped lines"
  echo "$(machinery | lines) lines of test machinery in product folders"
  echo "$(tests | lines) test lines"
  echo "$(docs | xargs cat | wc -w) words of docs"
  echo "$(bash scripts/files.sh | tr '\0' '\n' | cut -d/ -f1 | sort -u | wc -l) entries of the root"
  echo "$(shipped | grep -E '^\./(fsm|cluster)/' | code | matches "$levels") comparisons with a feature level"
  echo "$(shipped | comments | matches -i "$heads") pronoun heads in shipped comments"
  echo "$(go_files | comments | matches -i "$heads") pronoun heads in all comments"
  echo "$(docs | xargs cat | matches -i "$heads") pronoun heads in docs"
  echo "$(go_files | code | matches "$variables") variables named by a function word"
}

measured=$(sums)
if [ "${1:-}" = -write ]; then
  echo "$measured" >"$ceilings"
fi
awk 'FILENAME == ARGV[1] { name = $0; sub(/^[0-9]+ /, "", name); ceiling[name] = $1; next }
  { name = $0; sub(/^[0-9]+ /, "", name); above = !(name in ceiling) || $1 > ceiling[name]; failed = failed || above
    printf "%8d %8s  %s%s\n", $1, ceiling[name], name, above ? ": above its ceiling" : "" }
  END { exit failed }' "$ceilings" <(echo "$measured")
