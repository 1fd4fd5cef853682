# Shell functions over perftest for the checks in this folder, which source this file. They run in
# the machine.
set -u

fail() { echo "FAILED: $*" >&2; exit 1; }

# within SECONDS COMMAND...: repeats the command until it succeeds.
within() {
  tries=$(($1 * 10))
  shift
  until "$@"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || return 1
    sleep 0.1
  done
}

listens() { ss -ltnH 'sport = 18515' | grep -q .; }
port_state() { ibv_devinfo -d "$1" | awk '$1 == "state:" { print $2 }'; }
state_is() { [ "$(port_state "$1")" = "$2" ]; }
counter() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/$2"; }
sent_more_than() { [ "$(counter "$1" sent_pkts)" -gt "$2" ]; }

# start PROGRAM ARG...: the server on rxe1 and the client on rxe0; their ids in $server and $client.
start() {
  "$@" -F -d rxe1 >/run/server 2>&1 &
  server=$!
  within 20 listens || { cat /run/server; fail "the server of $1 does not listen"; }
  "$@" -F -d rxe0 10.77.0.2 >/run/client 2>&1 &
  client=$!
}

# run: a whole run that must succeed.
run() {
  start "$@"
  wait $client || { cat /run/client; fail "the client of '$*' ended with $?"; }
  wait $server || { cat /run/server; fail "the server of '$*' ended with $?"; }
}
