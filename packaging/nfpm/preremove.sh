#!/bin/sh
# Before a removal or an upgrade. $1 is "remove" for dpkg, or the number of versions that
# stay for rpm. An upgrade leaves a running node alone.
set -e
case $1 in
  remove | 0)
    if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
      systemctl disable --now signalbox.service || true
    fi
    ;;
esac
