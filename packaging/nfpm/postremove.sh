#!/bin/sh
# After a removal, or for dpkg a purge. The data folder and the files that were added to
# /etc/signalbox stay: a node that lost its state by mistake costs more than a few files.
set -e
case $1 in
  remove | purge | 0)
    if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
      systemctl daemon-reload || true
    fi
    ;;
esac
case $1 in
  purge | 0)
    if [ -e /var/lib/signalbox ] || [ -e /var/lib/private/signalbox ]; then
      echo "signalbox: the node's state stays in /var/lib/signalbox. If the node is no member of a cluster any more, remove the folder by hand"
    fi
    ;;
esac
