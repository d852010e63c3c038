#!/bin/sh
# After an installation or an upgrade. $1 is "configure" and $2 the earlier version for
# dpkg; $1 is the number of installed versions for rpm.
set -e
running=
if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
  systemctl daemon-reload || true
  if systemctl is-active --quiet signalbox.service; then running=yes; fi
fi
if [ -n "$running" ]; then
  # A package may arrive on all nodes at once; a restart of all of them would stop the service.
  echo "signalbox: the node goes on with its earlier program. One node at a time, each when the others are ready: systemctl restart signalbox"
elif [ "$1" = configure ] && [ -z "$2" ] || [ "$1" = 1 ]; then
  echo "signalbox: the service is neither enabled nor started. Edit /etc/signalbox/node.env first, then: systemctl enable --now signalbox"
fi
