#!/usr/bin/env bash
# Prints the files of the project, each before a zero byte: the files that git tracks, or in a folder that is no clone
# (a release's source, for example) all files that .gitignore does not name.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -e .git ]; then
  git ls-files -z
  exit
fi
GIT_DIR=$(mktemp -d)
export GIT_DIR GIT_WORK_TREE=.
trap 'rm -rf "$GIT_DIR"' EXIT
git init -q
git ls-files -z --others --exclude-per-directory=.gitignore
