#!/usr/bin/env bash
# Makes the wheel and the source archive of the Python client in folder $1, dated by SOURCE_DATE_EPOCH. It calls
# setuptools by the interface of PEP 517, as pip and build do: so it needs neither of them, nor a network.
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
out=$(realpath "$1")
cd "$(dirname "$0")/.."
python=
for each in "${PYTHON:-python3}" /usr/bin/python3; do # where python3 is another one, Debian's packages are of the latter
  if "$each" -c 'import setuptools; int(setuptools.__version__.split(".")[0]) >= 71 or __import__("wheel")' 2>/dev/null; then python=$each; break; fi
done
[ -n "$python" ] || { echo 'NOT BUILT: the Python client: apt install python3-setuptools python3-wheel' >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r client/python "$work/source"
cd "$work/source"
rm -rf tests # they need the program, which the archive does not have
sed -i 's|](../../docs/|](https://github.com/signalbox/signalbox/blob/main/docs/|g' README.md # as PyPI shows it
mkdir "$work/built"
umask 022
if ! "$python" -c "import setuptools.build_meta as b; b.build_wheel('$work/built'); b.build_sdist('$work/built')" >"$work/log" 2>&1; then
  cat "$work/log" >&2
  exit 1
fi
mv "$work"/built/*.whl "$out"
# setuptools dates the files of the source archive by the clock.
cd "$work/built"
tar -xzf ./*.tar.gz
name=$(basename ./*.tar.gz .tar.gz)
find "$name" -exec touch --date "@${SOURCE_DATE_EPOCH:-0}" {} +
tar --create --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w "$name" | gzip -9n >"$out/$name.tar.gz"
