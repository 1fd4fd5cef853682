# A failed link affects the write that runs over it, as an event or as silence; the write continues
# when the link is back. (The requester retries without limit: perftest's retry_cnt is 7, see
# README.md.)
. "$(dirname "$0")/perftest.sh"

received() { counter rxe1 rcvd_pkts; }
still() {
  before=$(received)
  sleep 1
  [ "$(received)" -eq "$before" ]
}
received_more_than() { [ "$(received)" -gt "$1" ]; }

# broken ACTION STATE...: during the action rxe0's port is in STATE and nothing arrives.
broken() {
  action=$1 state=$2
  start ib_write_bw -s 8192 -n 10000
  within 30 received_more_than $(($(received) + 500)) || fail "no write runs"
  fault rxe0 $action
  within 20 state_is rxe0 "$state" || fail "after $action rxe0 is $(port_state rxe0)"
  within 20 still || fail "after $action packets still arrive"
  kill -0 $client || fail "after $action the client is gone, or had ended before"
  stood=$(received)
  fault rxe0 clear
  within 20 state_is rxe0 PORT_ACTIVE || fail "after $action and clear rxe0 is $(port_state rxe0)"
  within 30 received_more_than "$stood" || fail "after $action and clear nothing arrives"
  wait $client || { cat /run/client; fail "after $action and clear the client ended with $?"; }
  wait $server || { cat /run/server; fail "after $action and clear the server ended with $?"; }
  echo "$action: stood still at $stood packets, then $(received)"
}

broken unplug PORT_DOWN
broken "netem loss 100%" PORT_ACTIVE

fault rxe0 down
within 20 state_is rxe0 PORT_DOWN || fail "after down rxe0 is $(port_state rxe0)"
fault rxe0 up
within 20 state_is rxe0 PORT_ACTIVE || fail "after up rxe0 is $(port_state rxe0)"
run ib_write_bw -s 65536 -n 10
echo "down and up: a new write runs"
