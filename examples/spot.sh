#!/bin/sh
# A job on capacity that can be reclaimed: follows notices from standard input, one on a line.
#
#     watch-notices | ./spot.sh -n 4 --max 8 -- python3 torch_ddp.py
#
#     reclaim MEMBER SECONDS     the GPU of this member goes away in so many seconds
#     offer MEMBERS              so many GPUs can be used from now on
#
# watch-notices stands for a program that asks the cloud, or the scheduler. The arguments are those of `rewire run`. At the
# end of its input the script waits for the job, and ends with the job's status.
set -u
folder=$(mktemp -d) || exit
socket=$folder/agent.sock
rewire run --socket "$socket" "$@" < /dev/null &
job=$!
trap 'kill "$job"' INT TERM
# The first notices may come before all members have started.
until rewire wait --for epoch=1 --socket "$socket" > /dev/null 2>&1; do
  kill -0 "$job" 2> /dev/null || break
  sleep 1
done
while read -r what number seconds; do
  kill -0 "$job" 2> /dev/null || break
  case $what in
    reclaim) rewire drain "$number" --within "${seconds}s" --socket "$socket" ;;
    offer) rewire resize "$number" --socket "$socket" ;;
    *) echo "spot.sh: $what: must be reclaim or offer" >&2 ;;
  esac
done
wait "$job"
status=$?
rm -r "$folder"
exit $status
