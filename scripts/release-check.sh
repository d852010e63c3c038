#!/usr/bin/env bash
# Checks the files of a release in folder $1: the checksums cover all files; with an SSH public key $2 the signature;
# each file is unpacked, or installed in a folder of its own, and its program is of the platform that its name says.
# It says NOT CHECKED where a tool is missing.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: $0 FOLDER [PUBLIC_KEY]" >&2; exit 2; }
public=${2:+$(realpath -e "$2")}
scripts=$(realpath "$(dirname "$0")")
cd "$1"
fail() { echo "FAILED: $*" >&2; exit 1; }
has() { command -v "$1" >/dev/null; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'echo "FAILED: $BASH_COMMAND" >&2' ERR

sha256sum --quiet --strict --check SHA256SUMS || fail 'SHA256SUMS'
diff <(sed 's/^[0-9a-f]*  //' SHA256SUMS | LC_ALL=C sort) <(find . -type f ! -name 'SHA256SUMS*' -printf '%P\n' | LC_ALL=C sort) || fail 'SHA256SUMS is not of the files of the folder'
number=$(sed -n 's/.*  signalbox-\(.*\)\.cdx\.json$/\1/p' SHA256SUMS)
[ -n "$number" ] || fail 'there is no bill of materials'
if [ -n "$public" ]; then
  echo "release $(cut -d' ' -f1,2 "$public")" >"$work/signers"
  ssh-keygen -Y verify -f "$work/signers" -I release -n file -s SHA256SUMS.sig <SHA256SUMS >"$work/log" 2>&1 || { cat "$work/log" >&2; fail 'the signature'; }
  echo 'signature: good'
elif [ -e SHA256SUMS.sig ]; then
  echo 'NOT CHECKED: the signature: there is no public key to compare it with'
else
  echo 'NOT CHECKED: the signature: SHA256SUMS is not signed'
fi

# program checks that program $1 is of system $2 and architecture $3, and runs it where that is this machine.
program() {
  local built
  built=$(go version -m "$1")
  grep -q "GOOS=$2$" <<<"$built" && grep -q "GOARCH=$3$" <<<"$built" || fail "$1 is not for $2 on $3"
  [ "$2/$3" != "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" ] || [ "$("$1" --version)" = "signalbox version $number" ] || fail "$1 is of another version"
}
for archive in signalbox-"$number"-*-*.tar.gz; do
  platform=${archive#signalbox-"$number"-} platform=${platform%.tar.gz}
  tar -xzf "$archive" -C "$work"
  for file in README.md LICENSE man/signalbox-serve.1 completions/_signalbox; do [ -s "$work/${archive%.tar.gz}/$file" ] || fail "$archive has no $file"; done
  program "$work/${archive%.tar.gz}/signalbox" "${platform%-*}" "${platform#*-}"
  echo "$archive: unpacked"
done
for package in *.deb *.rpm; do
  [ -e "$package" ] || continue
  mkdir "$work/installed"
  case $package in
    *_amd64.deb | *.x86_64.rpm) arch=amd64 ;;
    *_arm64.deb | *.aarch64.rpm) arch=arm64 ;;
    *) fail "$package is for no known machine" ;;
  esac
  case $package in
    *.deb) if has dpkg-deb; then dpkg-deb -x "$package" "$work/installed"; fi ;;
    # rpm2cpio of rpm 4.18 writes everything and then fails, since nfpm counts the bytes of the files alone. Names are absolute.
    *.rpm) if has rpm2cpio && has cpio; then { rpm2cpio "$package" || true; } | cpio -idm --quiet --no-absolute-filenames -D "$work/installed" 2>/dev/null; fi ;;
  esac
  if [ -e "$work/installed/usr" ]; then
    for file in usr/lib/systemd/system/signalbox.service etc/signalbox/node.env; do [ -s "$work/installed/$file" ] || fail "$package has no $file"; done
    program "$work/installed/usr/bin/signalbox" linux $arch
    echo "$package: unpacked (make packages-test installs and removes it)"
  else
    echo "NOT CHECKED: $package: dpkg-deb, or rpm2cpio and cpio, is missing"
  fi
  rm -rf "$work/installed"
done

wheel=signalbox-$number-py3-none-any.whl
if [ ! -e "$wheel" ]; then
  echo 'NOT CHECKED: the Python client: it is not in the folder'
elif python3 -m venv "$work/venv" >/dev/null 2>&1; then
  "$work/venv/bin/pip" install --quiet --no-index --no-deps --disable-pip-version-check "$wheel"
  got=$(cd "$work" && venv/bin/python -c 'import signalbox, signalbox.aio; print(signalbox.__version__)')
  [ "$got" = "${number%%-*}" ] || fail "$wheel is of version $got"
  tar -xzf "signalbox-$number.tar.gz" -C "$work"
  diff -r "$work/signalbox-$number/signalbox" "$work"/venv/lib/python3*/site-packages/signalbox -x __pycache__ || fail "the source archive has other modules than $wheel"
  echo "$wheel: installed and imported; its source archive has the same modules"
  if has mypy; then
    (cd "$work" && mypy --strict --cache-dir /dev/null --python-executable venv/bin/python -c 'import signalbox.aio; signalbox.Client(["http://n1:8701"]).lease("db", count=2)') || fail "mypy does not see the types of $wheel"
  else
    echo "NOT CHECKED: $wheel: that mypy sees its types: it is missing"
  fi
else
  echo "NOT CHECKED: $wheel: python3 can't make a venv here"
fi

chart=signalbox-chart-$number.tgz
tar -xzf "$chart" -C "$work"
[ "$(grep -cE "^(version|appVersion): $number$" "$work/signalbox/Chart.yaml")" = 2 ] || fail "$chart is of another version"
"$scripts/chart.sh" "$chart"
if [ -e signalbox.rb ]; then
  while read -r sum file; do
    grep -qx "$sum  $file" SHA256SUMS || fail "signalbox.rb has another checksum of $file"
  done < <(sed -n "s|^ *url .*/\([^/]*\)\"$|\1|p; s/^ *sha256 \"\(.*\)\"/\1/p" signalbox.rb | paste - - | awk '{ print $2, $1 }')
  echo 'signalbox.rb: it names four archives by their checksums'
else
  echo 'NOT CHECKED: signalbox.rb: it is made for all platforms together'
fi
for module in hashicorp/raft labstack/echo; do grep -q "github.com/$module" "signalbox-$number.cdx.json" || fail "the bill of materials lacks $module"; done
echo "signalbox-$number.cdx.json: it names Raft and the router"
