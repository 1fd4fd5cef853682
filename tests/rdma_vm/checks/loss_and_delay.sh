# tc-netem's faults on a device affect the write over the device; the write still succeeds.
. "$(dirname "$0")/perftest.sh"

fault rxe0 netem loss 3%
run ib_write_bw -s 65536 -n 50
dropped=$(tc -s qdisc show dev eth0 | sed -n 's/.*dropped \([0-9]*\).*/\1/p')
[ "$dropped" -gt 0 ] || fail "nothing was dropped"
[ "$(counter rxe1 out_of_seq_request)" -gt 0 ] || fail "the receiver missed nothing"
echo "loss: $dropped packets dropped, $(counter rxe1 out_of_seq_request) seen out of sequence"

# 20 round trips over a link that adds 50 ms to each take at least 1 s.
fault rxe0 netem delay 50ms
begin=$(date +%s%N)
run ib_write_lat -n 20 -u 18
took=$((($(date +%s%N) - begin) / 1000000))
[ $took -ge 1000 ] || fail "20 round trips with 50 ms delay took $took ms"
echo "delay: 20 round trips in $took ms"
