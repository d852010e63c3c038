#!/usr/bin/env bash
# Tests the archive, the deb and the rpm of this machine's kind: they are built twice with
# the same bytes; installed, started, upgraded and removed in a small Debian of their own;
# the unit is checked by systemd-analyze. Needs root. It says NOT CHECKED where a tool can't
# be had, and leaves neither processes nor folders, however it ends.
set -euo pipefail
cd "$(dirname "$0")/.."
export DEBIAN_FRONTEND=noninteractive
[ "$(id -u)" = 0 ] || { echo 'NOT CHECKED: the packages: a test of them needs root'; exit 0; }
arch=$(go env GOHOSTARCH)
work=$(mktemp -d /tmp/signalbox-packages.XXXXXX)
node=
finish() {
  if [ -n "$node" ]; then kill -KILL "$node" 2>/dev/null || true; wait "$node" 2>/dev/null || true; fi
  rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM
fail() { echo "FAILED: $*" >&2; exit 1; }
tool() { # tool COMMAND PACKAGE: installs it where it is missing
  command -v "$1" >/dev/null || { command -v apt-get >/dev/null && timeout 120 apt-get update -q && timeout 240 apt-get install -qy --no-install-recommends "$2"; } >/dev/null 2>&1
}

timeout 400 env CGO_ENABLED=0 go run "$(sed -n 's/^nfpm=(go run \([^)]*\)).*/\1/p' scripts/dist.sh)" --version >/dev/null 2>&1 ||
  { echo 'NOT CHECKED: the packages: nfpm could not be built here'; exit 0; }

# Twice, the second time in another folder: the same bytes.
export SOURCE_DATE_EPOCH=1700000000
VERSION=v9.8.7-0-gabcdef0 scripts/dist.sh "$work/first" "linux/$arch"
mkdir "$work/copy"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work/copy"
VERSION=v9.8.7-0-gabcdef0 "$work/copy/scripts/dist.sh" "$work/second" "linux/$arch" >/dev/null
diff -r "$work/first" "$work/second" || fail 'a second build has other bytes'
rm -rf "$work/copy" "$work/second"
[ "$(wc -l <"$work/first/SHA256SUMS")" = 3 ] || fail 'SHA256SUMS is not of an archive, a deb and an rpm'
(cd "$work/first" && sha256sum --quiet --check SHA256SUMS)
tar -xzf "$work/first/signalbox-9.8.7-linux-$arch.tar.gz" -C "$work"
PAGES=$work/signalbox-9.8.7-linux-$arch/man VERSION=v9.10.0-0-gabcdef1 scripts/dist.sh "$work/next" "linux/$arch" >/dev/null
listed=$(tar -tzf "$work/first/signalbox-9.8.7-linux-$arch.tar.gz")
for file in signalbox README.md LICENSE signalbox.service node.env man/signalbox-serve.1 completions/_signalbox; do
  grep -qx "signalbox-9.8.7-linux-$arch/$file" <<<"$listed" || fail "the archive has no $file"
done
echo 'built twice: the same bytes'

tool mmdebstrap mmdebstrap || true
tool rpm rpm || true
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
if ! command -v mmdebstrap >/dev/null || ! timeout 300 mmdebstrap --quiet --mode=root --variant=custom \
  --include=dpkg,dash,coreutils,libc-bin,sed,grep,tar,base-files,base-passwd,debianutils,diffutils,findutils "$suite" "$work/clean" 2>"$work/log"; then
  tail -n 3 "$work/log" 2>/dev/null || true
  echo 'NOT CHECKED: installation and removal: a Debian to install into could not be made here'
  if command -v dpkg-deb >/dev/null; then
    dpkg-deb -x "$work/first"/*.deb "$work/tree"
    [ "$("$work/tree/usr/bin/signalbox" --version)" = 'signalbox version 9.8.7' ] || fail 'the program of the deb is of another version'
  fi
  exit 0
fi

# A systemctl that notes its calls, as if systemd ran: it says whether the packages would
# start or stop the node.
mkdir -p "$work/clean/run/systemd/system"
printf '#!/bin/sh\necho "$@" >>/run/calls\n[ "$1" != is-active ] || [ -e /run/active ]\n' >"$work/clean/usr/bin/systemctl"
chmod 755 "$work/clean/usr/bin/systemctl"
cp -a "$work/clean" "$work/deb"
cp -a "$work/clean" "$work/rpm"

inside() { chroot "$root" "$@"; }
calls() { # calls EXPECTED: the calls of systemctl since the last look, but is-active
  local made
  made=$(grep -v is-active "$root/run/calls" | paste -sd,)
  rm -f "$root/run/calls"
  [ "$made" = "$1" ] || fail "the package called systemctl with '$made', not with '$1'"
}
free_port() { # the first free port from $1 on
  local port=$1
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  echo "$port"
}

# start runs the unit's ExecStart with the unit's environment and credentials, as a user
# without rights, until the node is ready. systemd would do so, and confine it too.
start() {
  local unit=$root/usr/lib/systemd/system/signalbox.service line command
  inside mkdir -p /run/credentials /var/lib/signalbox
  cp "$root"/etc/signalbox/*.pem "$root/run/credentials"
  inside chown -R 65534:65534 /run/credentials /var/lib/signalbox
  environment=()
  while IFS= read -r line; do environment+=("${line//%d//run/credentials}"); done < <(sed -n 's/^Environment=//p' "$unit"; grep -v '^#' "$root/etc/signalbox/node.env" | grep .)
  command=$(sed -n 's/^ExecStart=//p' "$unit")
  # shellcheck disable=SC2086 # the command's words
  chroot --userspec=65534:65534 "$root" /usr/bin/env -i "${environment[@]}" $command 2>"$work/node.log" &
  node=$!
  for _ in $(seq 150); do
    if ! kill -0 "$node" 2>/dev/null; then break; fi
    if inside /usr/bin/env -i "${environment[@]}" signalbox healthcheck >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  cat "$work/node.log"
  fail 'the node of the unit did not become ready'
}
stop() {
  local status=0
  kill -TERM "$node"
  wait "$node" || status=$?
  node=
  [ $status = 0 ] || { cat "$work/node.log"; fail "the node ended with status $status"; }
}
ask() { # ask VERB…: by the client of the installed program
  inside /usr/bin/env -i SIGNALBOX_ADDR="https://127.0.0.1:$port" SIGNALBOX_CA=/etc/signalbox/ca.pem signalbox "$@"
}
files="/usr/bin/signalbox /usr/lib/systemd/system/signalbox.service /usr/share/man/man1/signalbox.1.gz /usr/share/man/man1/signalbox-serve.1.gz
/usr/share/bash-completion/completions/signalbox /usr/share/fish/vendor_completions.d/signalbox.fish"

# life installs, starts, upgrades and removes: install, upgrade and remove are commands.
life() {
  local kind=$1 file
  root=$work/$kind
  port=$(free_port 18701)
  install_it "$work/first"
  calls daemon-reload
  for file in $files; do [ -s "$root$file" ] || fail "the $kind has no $file"; done
  grep -Rqs _signalbox "$root"/usr/share/zsh || fail "the $kind has no completion for zsh"
  if grep -v '^#' "$root/etc/signalbox/node.env" | grep .; then fail 'the settings are not empty'; fi
  [ "$(inside signalbox --version)" = 'signalbox version 9.8.7' ] || fail 'another version was installed'
  [ ! -e "$root/var/lib/signalbox" ] || fail 'the installation has made a data folder'

  inside signalbox cert cluster n1=127.0.0.1 --dir /tmp/certs >/dev/null
  cp "$root"/tmp/certs/n1/* "$root/etc/signalbox"
  printf '%s\n' SIGNALBOX_NODE_ID=n1 "SIGNALBOX_HTTP=127.0.0.1:$port" SIGNALBOX_TOKENS= "SIGNALBOX_PEER=127.0.0.1:$(free_port 19701)" >>"$root/etc/signalbox/node.env"
  start
  ask create db --permits 3 >/dev/null
  stop

  touch "$root/run/active"
  upgrade_it "$work/next" >"$work/said"
  rm "$root/run/active"
  calls daemon-reload # and neither restart nor disable
  grep -q 'One node at a time' "$work/said" || fail "the upgrade does not say that the earlier program goes on"
  [ "$(inside signalbox --version)" = 'signalbox version 9.10.0' ] || fail 'the upgrade has left the earlier program'
  grep -q '^SIGNALBOX_NODE_ID=n1' "$root/etc/signalbox/node.env" || fail 'the upgrade has replaced the settings'
  start
  grep -q '"permits": *3' <<<"$(ask show db -o json)" || fail 'the upgraded node has lost its state'
  stop

  remove_it
  calls 'disable --now signalbox.service,daemon-reload'
  for file in $files; do [ ! -e "$root$file" ] || fail "the removal of the $kind has left $file"; done
  [ -e "$root/etc/signalbox/node.env" ] || [ -e "$root/etc/signalbox/node.env.rpmsave" ] || fail 'the removal has deleted the edited settings'
  [ -n "$(ls "$root/var/lib/signalbox")" ] || fail 'the removal has deleted the data folder'
}

install_it() { cp "$1"/*.deb "$root/tmp/it.deb" && inside dpkg -i /tmp/it.deb >/dev/null; }
upgrade_it() { cp "$1"/*.deb "$root/tmp/it.deb" && inside dpkg -i /tmp/it.deb; }
remove_it() { inside dpkg -r signalbox >/dev/null 2>&1; }
life deb
inside dpkg -P signalbox >/dev/null 2>&1
[ ! -e "$root/etc/signalbox/node.env" ] || fail 'the purge has left the settings of the package'
[ -n "$(ls "$root/var/lib/signalbox")" ] || fail 'the purge has deleted the data folder'
echo "deb: installed, started, upgraded, removed and purged"

if command -v rpm >/dev/null; then
  install_it() { rpm --root "$root" --nodeps --ignorearch -i "$1"/*.rpm >/dev/null; }
  upgrade_it() { rpm --root "$root" --nodeps --ignorearch -U "$1"/*.rpm; }
  remove_it() { rpm --root "$root" -e signalbox >/dev/null 2>&1; }
  life rpm
  echo "rpm: installed, started, upgraded and removed"
else
  echo 'NOT CHECKED: the rpm: rpm could not be installed here'
fi

if command -v systemd-analyze >/dev/null; then
  dpkg-deb -x "$work"/first/*.deb "$work/clean"
  unit=$work/clean/usr/lib/systemd/system/signalbox.service
  printf '#!/bin/sh\n' >"$work/clean/bin/kill" # of ExecReload; Debian has it in procps
  chmod 755 "$work/clean/bin/kill"
  said=$(systemd-analyze --root="$work/clean" --recursive-errors=no --man=no verify "$unit" 2>&1) && [ -z "$said" ] || fail "the unit: $said"
  systemd-analyze security --offline=true --threshold=20 --no-pager "$unit" | tail -n 1
else
  echo 'NOT CHECKED: the unit: there is no systemd-analyze here'
fi
