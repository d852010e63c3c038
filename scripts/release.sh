#!/usr/bin/env bash
# Makes the release of tag $1 in folder $2 (dist/TAG) from a clean clone: archives, debs and
# rpms, the Helm chart, the Homebrew formula, the bill of materials, and SHA256SUMS over all
# of them. It publishes nothing.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: $0 TAG [FOLDER]" >&2; exit 2; }
tag=$1
cd "$(dirname "$0")/.."
[[ $tag =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || { echo "$tag is not of the form v1.2.3 or v1.2.3-rc.1" >&2; exit 2; }
git rev-parse --quiet --verify "refs/tags/$tag^{commit}" >/dev/null || { echo "there is no tag $tag" >&2; exit 1; }
mkdir -p "${2:-dist/$tag}"
out=$(cd "${2:-dist/$tag}" && pwd)
[ -z "$(ls -A "$out")" ] || { echo "$out is not empty" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git -c advice.detachedHead=false clone --quiet --branch "$tag" . "$work/source"
cd "$work/source"
number=${tag#v}

bare=${number%%-*}
grep -qx "const release = \"$bare\"" cmd/signalbox/inspect.go || { echo "the source of $tag is of another version: const release in cmd/signalbox/inspect.go" >&2; exit 1; }
grep -q "^## $bare\b" CHANGELOG.md || [ "$number" != "$bare" ] || { echo "CHANGELOG.md has no section $bare" >&2; exit 1; }
VERSION=$tag-0-g$(git rev-parse --short HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export VERSION SOURCE_DATE_EPOCH
# shellcheck disable=SC2086 # words
scripts/dist.sh "$out" ${PLATFORMS:-} >/dev/null

# The modules of the program, without those of tests. The image has the same ones: it has the program alone.
go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 app -json -noserial -main cmd/signalbox -output "$work/sbom.json" .
grep -v '^ *"timestamp": ' "$work/sbom.json" >"$out/signalbox-$number.cdx.json"

sed -i "s/^\(version\|appVersion\): .*/\1: $number/" packaging/helm/signalbox/Chart.yaml
find packaging/helm -exec touch --date "@$SOURCE_DATE_EPOCH" {} +
tar --create --directory packaging/helm --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w signalbox | gzip -9n >"$out/signalbox-chart-$number.tgz"

script="s/@NUMBER@/$number/g"
while read -r sum file; do
  case $file in signalbox-"$number"-*.tar.gz) platform=${file#signalbox-"$number"-}; script+=";s/@${platform%.tar.gz}@/$sum/" ;; esac
done <"$out/SHA256SUMS"
sed "$script" packaging/homebrew/signalbox.rb.in >"$out/signalbox.rb"
if grep -n '@.*@' "$out/signalbox.rb"; then echo 'the formula lacks the checksums above' >&2; [ -n "${PLATFORMS:-}" ]; fi

cd "$out"
rm SHA256SUMS
find . -maxdepth 1 -type f -printf '%f\n' | LC_ALL=C sort | xargs sha256sum >"$work/sums"
mv "$work/sums" SHA256SUMS
cat SHA256SUMS
