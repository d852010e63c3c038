#!/bin/sh
# Prints the commit that is checked out, without git: for the build of the image, whose context has no more of the
# repository than HEAD and the refs, and whose shell may have no tools. It prints nothing where these are not
# enough, as in a linked work tree. Changes that are not committed don't show.
set -eu
cd "${0%/*}/../.git" 2>/dev/null || exit 0
read -r head <HEAD
case $head in
"ref: "*)
  ref=${head#ref: } head=
  if [ -f "$ref" ]; then
    read -r head <"$ref"
  elif [ -f packed-refs ]; then
    while read -r id name; do [ "$name" != "$ref" ] || head=$id; done <packed-refs
  fi
  ;;
esac
printf '%.12s' "$head"
