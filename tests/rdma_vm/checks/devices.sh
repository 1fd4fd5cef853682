# The devices exist with their names and are active, and a write crosses the link between the two.
. "$(dirname "$0")/perftest.sh"

[ "$REWIRE_VM_DEVICES" = "rxe0 rxe1" ] || fail "REWIRE_VM_DEVICES is '$REWIRE_VM_DEVICES'"
for device in $REWIRE_VM_DEVICES; do
  state_is "$device" PORT_ACTIVE || fail "$device is $(port_state "$device")"
done

run ib_write_bw -s 65536 -n 100
sent=$(cat /sys/class/net/eth0/statistics/tx_bytes)
[ "$sent" -gt $((65536 * 100)) ] || fail "only $sent bytes left eth0: the write took another way"
tail -n 3 /run/client
