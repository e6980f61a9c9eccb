#!/usr/bin/env bash
# Three hosts, an endpoint and a tenant's cluster as real processes under real kubectl: create, kill -9 of the leader's host while a loop
# writes, restart on the same data, delete. Needs the binaries in $BIN and kubectl, jq-free. Ports from $PORT up.
set -euo pipefail

BIN=${BIN:-${CARGO_TARGET_DIR:-target}/debug}
PORT=${PORT:-26400}
DIR=${DIR:-$(mktemp -d)}
KEEP=${KEEP:-}
declare -A PIDS

say() { printf '%(%H:%M:%S)T %s\n' -1 "$*"; }

stop_all() {
    local status=$?
    for name in "${!PIDS[@]}"; do kill -9 "${PIDS[$name]}" 2>/dev/null || true; done
    if [ "$status" != 0 ]; then
        say "failed; the logs are in $DIR"
        for log in "$DIR"/*.log; do echo "== $log"; tail -n 30 "$log"; done
    elif [ -z "$KEEP" ]; then
        rm -rf "$DIR"
    fi
}
trap stop_all EXIT

# until_true SECONDS WHAT COMMAND...: waits for a condition.
until_true() {
    local limit=$1 what=$2 end=$((SECONDS + $1))
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { say "not within ${limit} s: $what"; "$@" || true; return 1; }
        sleep 0.1
    done
    say "$what"
}

host_flags() { # letter index
    local base=$((PORT + 10 * $2))
    echo --data-dir "$DIR/host-$1" --name "host-$1" --zone "zone-$1" --clients-listen "127.0.0.1:$((base + 4))" \
        --peers-listen "127.0.0.1:$((base + 5))" --metrics-listen "127.0.0.1:$((base + 6))"
}

run_host() {
    "$BIN/wheelhouse-host" run --data-dir "$DIR/host-$1" --name "host-$1" >>"$DIR/host-$1.log" 2>&1 &
    PIDS[host-$1]=$!
}

ENDPOINT=$((PORT + 3))
system() { kubectl --kubeconfig "$DIR/host-a/credentials/operator.kubeconfig" --request-timeout=10s "$@"; }
tenant() { kubectl --kubeconfig "$DIR/tenant.kubeconfig" --request-timeout=10s "$@"; }
ready_hosts() { [ "$(system get hosts -o 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}')" = "True True True" ]; }
cluster_field() { system -n tenant-t1 get cluster demo -o "jsonpath={$1}"; }
condition() { [ "$(system -n "$1" get cluster "$2" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = "$3" ]; }
voters() { [ "$(system -n "$1" get cluster "$2" -o 'jsonpath={.status.members[?(@.voter==true)].replicaID}' | wc -w)" = "$3" ]; }

say "data in $DIR"
"$BIN/wheelhouse-host" init $(host_flags a 0) --endpoint "https://127.0.0.1:$ENDPOINT"
run_host a
TOKEN=$("$BIN/wheelhouse-host" token --data-dir "$DIR/host-a")
"$BIN/wheelhouse-endpoint" --listen "127.0.0.1:$ENDPOINT" --metrics-listen "127.0.0.1:$((PORT + 2))" --host "127.0.0.1:$((PORT + 5))" \
    --credentials "$DIR/host-a/credentials/endpoint" --data-dir "$DIR/endpoint" >>"$DIR/endpoint.log" 2>&1 &
PIDS[endpoint]=$!
until_true 30 "the system API answers" system get --raw /readyz
for pair in "b 1" "c 2"; do
    set -- $pair
    "$BIN/wheelhouse-host" join $(host_flags "$1" "$2") --host "127.0.0.1:$((PORT + 5))" $TOKEN
    run_host "$1"
done
until_true 30 "three hosts are ready" ready_hosts
until_true 60 "the system cluster has three voters" voters wheelhouse-system system 3
until_true 30 "the system cluster is ready" condition wheelhouse-system system True
system get hosts,clusters -A

system apply -f - <<YAML
apiVersion: fleet.wheelhouse.dev/v1
kind: Tenant
metadata: {name: t1}
spec: {displayName: Smoke, email: smoke@example.org}
YAML
until_true 10 "the tenant has its namespace" system get namespace tenant-t1
START=$(date +%s%N)
system apply -f - <<YAML
apiVersion: fleet.wheelhouse.dev/v1
kind: Cluster
metadata: {name: demo, namespace: tenant-t1}
spec: {replicas: 3}
YAML
until_true 30 "the tenant's cluster is ready" condition tenant-t1 demo True
say "created to Ready: $((($(date +%s%N) - START) / 1000000)) ms"

# The tenant's credential comes from the tenant API elsewhere; here the operator's own tool makes one.
"$BIN/wheelhouse-host" credentials --data-dir "$DIR/host-a" cluster-admin --cluster "$(cluster_field .status.clusterID)" --out "$DIR/tenant.kubeconfig"
tenant get namespaces
tenant create configmap before --from-literal=a=1
tenant create deployment web --image=nginx --replicas=2 || true

LEADER=$(cluster_field .status.leader)
say "kill -9 of $LEADER, which leads the cluster"
(
    n=0
    while [ ! -e "$DIR/stop-writing" ]; do
        n=$((n + 1))
        if tenant create configmap "w$n" --from-literal=n=$n >/dev/null 2>&1; then echo "$n $(date +%s%N)" >>"$DIR/written"; fi
    done
) &
WRITER=$!
sleep 1
kill -9 "${PIDS[$LEADER]}"
sleep 5
touch "$DIR/stop-writing"
wait $WRITER || true
say "longest gap between writes: $(awk 'NR>1 && ($2-p)>m {m=$2-p} {p=$2} END {printf "%d ms over %d writes", m/1000000, NR}' "$DIR/written")"
tenant get configmaps -o 'jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}' >"$DIR/listed"
while read -r n _; do grep -qx "w$n" "$DIR/listed" || { say "acknowledged write w$n is lost"; exit 1; }; done <"$DIR/written"
say "no acknowledged write is lost"

say "everything is killed and started again on its data"
for name in "${!PIDS[@]}"; do [ "$name" = endpoint ] || kill -9 "${PIDS[$name]}" 2>/dev/null || true; done
sleep 0.2
for letter in a b c; do run_host $letter; done
until_true 30 "the tenant's cluster answers after the restart" tenant get configmap before
until_true 30 "three hosts are ready" ready_hosts

say "SIGTERM drains $(cluster_field .status.leader)"
LEADER=$(cluster_field .status.leader)
kill "${PIDS[$LEADER]}"
wait "${PIDS[$LEADER]}" || { say "the host did not exit cleanly"; exit 1; }
tenant create configmap after-drain --from-literal=a=1
run_host "${LEADER#host-}"
until_true 30 "three hosts are ready" ready_hosts

system -n tenant-t1 delete cluster demo --timeout=60s
until_true 30 "no replica is left" bash -c "! ls $DIR/host-*/replicas/c-*.json"
say "passed"
