#!/usr/bin/env bash
# Makes the release of tag TAG in FOLDER (dist/TAG) from a clean clone: archives, debs and rpms, the Python
# client, the Helm chart, the Homebrew formula, the bill of materials, and SHA256SUMS over all of them, which
# it signs with the SSH key of --key. It builds everything twice, in two folders, and wants the same bytes;
# it checks every file (scripts/release-check.sh); it publishes nothing, but prints the commands that do.
#
# --dry-run does the same with HEAD, where the tag need not exist yet: only the clone gets it. Without FOLDER
# the files of a dry run are removed at the end.
set -euo pipefail
usage() { echo "usage: $0 TAG [FOLDER] [--dry-run] [--key FILE]" >&2; exit 2; }
tag='' folder='' dry='' key=''
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry=1 ;;
    --key) [ $# -gt 1 ] || usage; key=$(realpath -e "$2"); shift ;;
    -*) usage ;;
    *) if [ -z "$tag" ]; then tag=$1; elif [ -z "$folder" ]; then folder=$1; else usage; fi ;;
  esac
  shift
done
[ -n "$tag" ] || usage
[[ $tag =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || { echo "$tag is not of the form v1.2.3 or v1.2.3-rc.1" >&2; exit 2; }
if [ -n "$folder" ]; then mkdir -p "$folder"; folder=$(realpath "$folder"); fi
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "$dry" ]; then
  commit=$(git rev-parse HEAD)
  out=${folder:-$work/out}
  [ -z "$(git status --porcelain)" ] || echo "NOT PART of this dry run: the changes that are not committed" >&2
else
  commit=$(git rev-parse --quiet --verify "refs/tags/$tag^{commit}") || { echo "there is no tag $tag" >&2; exit 1; }
  out=${folder:-$PWD/dist/$tag}
fi
mkdir -p "$out"
[ -z "$(ls -A "$out")" ] || { echo "$out is not empty" >&2; exit 1; }
for copy in source again; do
  git clone --quiet --no-checkout . "$work/$copy"
  git -C "$work/$copy" -c advice.detachedHead=false checkout --quiet --detach "$commit"
  git -C "$work/$copy" -c tag.gpgSign=false tag --force "$tag" >/dev/null
done
cd "$work/source"
number=${tag#v}

bare=${number%%-*}
grep -qx "const release = \"$bare\"" cmd/signalbox/inspect.go || { echo "the source of $tag is of another version: const release in cmd/signalbox/inspect.go" >&2; exit 1; }
grep -q "^## $bare\b" CHANGELOG.md || [ "$number" != "$bare" ] || { echo "CHANGELOG.md has no section $bare" >&2; exit 1; }
[ -e "cmd/signalbox/testdata/released/v$bare.zip" ] || [ "$number" != "$bare" ] || { echo "the data folder of $bare is missing: go test ./cmd/signalbox -run TestReleasedFolders -update" >&2; exit 1; }
VERSION=$tag-0-g$(git rev-parse --short HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export VERSION SOURCE_DATE_EPOCH

# build makes all files of the release in folder $1 from the source in the current folder.
build() {
  local script sum file platform
  # shellcheck disable=SC2086 # words
  scripts/dist.sh "$1" ${PLATFORMS:-} >/dev/null
  # The Python client has no candidates: its version is the number alone.
  [ "$number" != "$bare" ] || scripts/wheel.sh "$1" || [ -n "$dry" ]

  # The modules of the program, without modules of tests. The image has the program alone, so it has the same modules.
  go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 app -json -noserial -main cmd/signalbox -output "$work/sbom.json" .
  grep -v '^ *"timestamp": ' "$work/sbom.json" >"$1/signalbox-$number.cdx.json"

  sed -i "s/^\(version\|appVersion\): .*/\1: $number/" packaging/helm/signalbox/Chart.yaml
  find packaging/helm -exec touch --date "@$SOURCE_DATE_EPOCH" {} +
  tar --create --directory packaging/helm --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w signalbox |
    gzip -9n >"$1/signalbox-chart-$number.tgz"

  script="s/@NUMBER@/$number/g"
  while read -r sum file; do
    case $file in signalbox-"$number"-*.tar.gz) platform=${file#signalbox-"$number"-}; script+=";s/@${platform%.tar.gz}@/$sum/" ;; esac
  done <"$1/SHA256SUMS"
  sed "$script" packaging/homebrew/signalbox.rb.in >"$1/signalbox.rb"
  if grep -q '@.*@' "$1/signalbox.rb"; then
    [ -n "${PLATFORMS:-}" ] || { echo 'the formula lacks checksums' >&2; return 1; }
    rm "$1/signalbox.rb" # it needs all platforms
  fi
  (cd "$1" && rm SHA256SUMS && find . -maxdepth 1 -type f -printf '%f\n' | LC_ALL=C sort | xargs sha256sum >"$work/sums" && mv "$work/sums" SHA256SUMS)
}
build "$out"
mkdir "$work/second"
(cd "$work/again" && build "$work/second" 2>/dev/null)
diff -r "$out" "$work/second" || { echo 'FAILED: the second build has other bytes' >&2; exit 1; }
echo "built twice: the same bytes"

public=''
if [ -n "$key" ]; then # a private key, or the public half of a key that ssh-agent holds
  public=$work/key.pub
  if [[ $key == *.pub ]]; then cp "$key" "$public"; elif [ -e "$key.pub" ]; then cp "$key.pub" "$public"; else ssh-keygen -y -f "$key" >"$public"; fi
  ssh-keygen -q -Y sign -f "$key" -n file "$out/SHA256SUMS"
fi
scripts/release-check.sh "$out" $public
cat "$out/SHA256SUMS"

files=${folder:-dist/$tag} tags="$tag client/$tag" candidate=''
[ "$number" = "$bare" ] || candidate=' --prerelease'
printf '\nLeft to the owner (docs/releasing.md):\n'
if [ -n "$dry" ]; then
  files=dist/$tag # the release is made anew, of the tag
  for each in $tags; do echo "  git tag -s $each -m 'Signalbox $number' ${commit:0:12}"; done
  echo "  scripts/release.sh $tag --key ~/.ssh/id_ed25519"
fi
cat <<END
  git push origin $tags
  gh release create $tag --verify-tag$candidate --title 'Signalbox $number' --notes-file <(awk '/^## / { on = \$2 == "$bare" } on' CHANGELOG.md) $files/*
  docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=$VERSION --label org.opencontainers.image.version=$number --label org.opencontainers.image.revision=$commit --tag REGISTRY/signalbox:$number --push 'https://github.com/signalbox/signalbox.git#$tag'
  helm push $files/signalbox-chart-$number.tgz oci://REGISTRY/charts
  mkdir -p TAP/Formula && cp $files/signalbox.rb TAP/Formula/ && git -C TAP add Formula && git -C TAP commit -m 'signalbox $number' && git -C TAP push
END
[ "$number" != "$bare" ] || echo "  twine upload $files/signalbox-$number.tar.gz $files/signalbox-$number-py3-none-any.whl"
