#!/usr/bin/env bash
# Makes what a release consists of, in folder $1: for each platform (default: the four of a
# release) an archive, for Linux also a deb and an rpm, and SHA256SUMS. The same source and
# VERSION give the same bytes. Files are dated by SOURCE_DATE_EPOCH, the time of the commit.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: $0 FOLDER [OS/ARCH]..." >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
nfpm=(go run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2) # later ones use modules that not every proxy has
export CGO_ENABLED=0
own=$(go env GOHOSTOS)/$(go env GOHOSTARCH)
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then SOURCE_DATE_EPOCH=$(git log -1 --format=%ct); fi
export SOURCE_DATE_EPOCH

make --no-print-directory -s build BINARY="$work/own"
if [ -n "${PAGES:-}" ]; then # made before, from the same source
  cp -r "$PAGES" "$work/man"
else
  make --no-print-directory -s man MAN="$work/man" >/dev/null
fi
NUMBER=$("$work/own" --version)
NUMBER=${NUMBER##* }
export NUMBER
mkdir "$work/completions"
"$work/own" completion bash >"$work/completions/signalbox.bash"
"$work/own" completion fish >"$work/completions/signalbox.fish"
"$work/own" completion zsh >"$work/completions/_signalbox"

dated() { find "$1" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +; }

for platform in "$@"; do
  system=${platform%/*} ARCH=${platform#*/}
  name=signalbox-$NUMBER-$system-$ARCH
  tree=$work/$name
  mkdir "$tree"
  if [ "$platform" = "$own" ]; then
    cp "$work/own" "$tree/signalbox"
  else
    GOOS=$system GOARCH=$ARCH make --no-print-directory -s build BINARY="$tree/signalbox"
  fi
  cp README.md LICENSE "$tree"
  cp -r "$work/man" "$work/completions" "$tree"
  if [ "$system" = linux ]; then cp packaging/systemd/signalbox.service packaging/systemd/node.env "$tree"; fi
  dated "$tree"
  tar --create --directory "$work" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w "$name" | gzip -9n >"$out/$name.tar.gz"
  if [ "$system" = linux ]; then # packages belong below /usr, and manual pages are compressed there
    sed -i 's|^ExecStart=/usr/local/bin/|ExecStart=/usr/bin/|' "$tree/signalbox.service"
    gzip -9n "$tree"/man/*.1
    dated "$tree"
    for kind in deb rpm; do
      STAGE=$tree ARCH=$ARCH GOOS='' GOARCH='' "${nfpm[@]}" package --config packaging/nfpm/nfpm.yaml --packager "$kind" --target "$out" >/dev/null
    done
  fi
done
cd "$out"
find . -maxdepth 1 -type f \( -name "signalbox[-_]${NUMBER//-/[-~]}[-_]*" \) -printf '%f\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS
cat SHA256SUMS
