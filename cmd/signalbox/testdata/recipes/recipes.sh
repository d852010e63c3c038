# What the commands of docs/recipes.md do. TestRecipes puts the commands of recipe N in place of the line "# recipe N": "first" is the
# first of them, "rest" are the others. $A is a node, $T a folder.
set -eu

curl() { command curl --fail --silent --show-error "$@"; }
try() { command curl --silent --write-out ' %{http_code}' "$@"; } # the reply, a refusal too, and its status
session() { echo "$1" | sed 's/.*"session":"\([0-9]*\)".*/\1/'; }
await() { until curl "$A/v1/semaphores/$1" | grep -q "$2"; do sleep 0.1; done; }
shows() { # a text, and a part of it
  case "$1" in *"$2"*) ;; *) echo "recipe $N: no $2 in $1" >&2 && exit 1 ;; esac
}
mkdir "$T/bin" && printf '#!/bin/sh\necho "$1 on $CUDA_VISIBLE_DEVICES"\n' >"$T/bin/python" && chmod +x "$T/bin/python"
PATH="$T/bin:$PATH"

N=1
# recipe 1
shows "$(curl $A/v1/semaphores/pool/groups/acme)" '"limit":10,"own":true,"used":1'
for request in 1 2 3; do
  curl $A/v1/semaphores/pool/leases -d '{"group":"globex","ttl":"5m"}'
done
shows "$(try $A/v1/semaphores/pool/leases -d '{"group":"globex"}')" 'Group globex uses 3 of its 3.'
shows "$(try $A/v1/semaphores/pool/leases -d '{"group":"globex"}')" ' 409'

N=2
{
  # recipe 2
} >"$T/branch"
shows "$(try $A/v1/semaphores/branches/leases -d '{"group":"fix-17"}')" ' 409'
other=$(curl $A/v1/semaphores/branches/leases -d '{"group":"main"}')
curl -X DELETE $A/v1/sessions/$(session "$other")
curl -X DELETE $A/v1/sessions/$(session "$(tail -n 1 "$T/branch")")
shows "$(curl $A/v1/semaphores/branches/groups)" '"groups":[]'

N=3
# recipe 3
curl $A/v1/semaphores/api/down -d '{"group":"192.0.2.7","count":19}'
refused=$(try --dump-header "$T/headers" $A/v1/semaphores/api/down -d '{"group":"192.0.2.7"}')
shows "$refused" '"available_in_ms":'
shows "$refused" ' 409'
grep -i '^retry-after: [1-9]' "$T/headers"
curl $A/v1/semaphores/api/down -d '{"group":"192.0.2.8"}'

N=4
# recipe 4
shows "$(curl $A/v1/semaphores/tpm/groups/acme)" '"used":1742,'

N=5
# recipe 5
shows "$(curl $A/v1/semaphores/rpm)" '"returning":1,'
shows "$(curl $A/v1/sessions/$S)" '"semaphore":"pool"'
curl -X PUT $A/v1/semaphores/pool/groups/acme -d '{"limit":1}'
S=$(session "$(curl $A/v1/sessions -d '{"ttl":"30s"}')")
shows "$(try $A/v1/sessions/$S/acquire -d '{"mode":"all","semaphores":[{"name":"rpm"},{"name":"pool","group":"acme"}]}')" ' 202' # it waits
shows "$(curl $A/v1/semaphores/rpm)" '"returning":1,'

N=6
{
  # recipe 6
} >"$T/training"
shows "$(cat "$T/training")" 'train.py on 0,1'

N=7
# recipe 7
running=$(curl $A/v1/semaphores/deploy/leases -d '{"group":"prod","ttl":"5m"}')
{ signalbox run deploy --group prod -- true || echo "status $?"; } >"$T/second" &
second=$!
await deploy '"waiter_count":1'
curl $A/v1/semaphores/deploy/leases -d '{"group":"prod","ttl":"5m","wait":"5m"}' >"$T/third" &
third=$!
wait $second
shows "$(cat "$T/second")" 'status 3'
curl -X DELETE $A/v1/sessions/$(session "$running")
wait $third
shows "$(cat "$T/third")" '"token"'

N=8
# recipe 8 first
curl $A/v1/semaphores/rig/leases -d '{"ttl":"1s"}'
await rig '"lost_count":1'
shows "$(try $A/v1/semaphores/rig/leases -d '{}')" ' 409'
# recipe 8 rest
shows "$(curl $A/v1/semaphores/rig/leases -d '{"ttl":"3h"}')" '"expires_in_ms":7200000'

N=9
curl -X PUT $A/v1/semaphores/db -d '{"permits":1}'
# recipe 9 first
shows "$(try $A/v1/semaphores/db/leases -d '{}')" 'disk swap'
curl $A/v1/semaphores/db/leases -d '{"wait":"5m"}' >"$T/db" &
waiting=$!
await db '"waiter_count":1'
# recipe 9 rest
wait $waiting
shows "$(cat "$T/db")" '"token"'

N=10
# recipe 10 first
running=$(curl $A/v1/semaphores/release/leases -d '{"ttl":"5m"}')
curl $A/v1/semaphores/release/leases -d '{"ttl":"5m","wait":"5m"}' >"$T/deployment" &
deployment=$!
await release '"waiter_count":1'
{
  # recipe 10 rest
} >"$T/hotfix" &
hotfix=$!
await release '"waiter_count":2'
curl -X DELETE $A/v1/sessions/$(session "$running")
wait $hotfix
shows "$(curl $A/v1/semaphores/release)" '"waiter_count":1'
curl -X DELETE $A/v1/sessions/$(session "$(cat "$T/hotfix")")
wait $deployment
shows "$(cat "$T/deployment")" '"token"'
echo 'all recipes are as expected'
