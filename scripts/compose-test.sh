#!/usr/bin/env bash
# Tests docker-compose.yml, docker-compose.secure.yml and the three machines of docs/install.md on real
# containers: builds the image, starts the nodes and has the tests in cmd/signalbox
# (compose_test.go, compose_secure_test.go) write, restart, kill and cut off. Everything
# is taken down again, volumes and image too, however it ends.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! docker info >/dev/null 2>&1; then
  echo '***' >&2
  echo '*** NOT TESTED: no Docker engine answers here, so the containers were not tried.' >&2
  echo '***' >&2
  exit 0
fi
if docker compose version >/dev/null 2>&1; then
  export COMPOSE='docker compose'
else
  export COMPOSE='docker-compose'
fi

free_port() { # the first free port from $1 on
  local port=$1
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  echo "$port"
}

export COMPOSE_PROJECT_NAME=signalbox-test-$$
export SIGNALBOX_IMAGE=signalbox:test-$$
# Without an argument the image has the commit. README's commands build with the same argument, so from the cache.
TESTED_COMMIT=$(sh scripts/commit.sh)
SIGNALBOX_VERSION=
if [ -z "$TESTED_COMMIT" ]; then TESTED_COMMIT=1234567 SIGNALBOX_VERSION=1234567; fi
export TESTED_COMMIT SIGNALBOX_VERSION
SIGNALBOX_PORT_1=$(free_port 28701) SIGNALBOX_PORT_2=$(free_port 29701) SIGNALBOX_PORT_3=$(free_port 30701)
export SIGNALBOX_PORT_1 SIGNALBOX_PORT_2 SIGNALBOX_PORT_3

down() {
  $COMPOSE down --volumes --remove-orphans --timeout 10 >/dev/null 2>&1 || true
  docker image rm "$SIGNALBOX_IMAGE" >/dev/null 2>&1 || true
}
trap down EXIT
trap 'exit 1' INT TERM

$COMPOSE config --quiet
$COMPOSE -f docker-compose.yml -f docker-compose.secure.yml config --quiet
docker build --quiet --build-arg "VERSION=$SIGNALBOX_VERSION" --tag "$SIGNALBOX_IMAGE" .
$COMPOSE up --detach --no-build
tests() { go test -tags compose -count 1 -timeout 15m -v -run "$1" ./cmd/signalbox; }
tests '^TestCompose$' # takes them down
tests '^(TestComposeSecure|TestThreeMachines)$'
