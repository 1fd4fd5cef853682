// Scheduling of the calling thread on a machine that training fills.
#pragma once

namespace rewire {

// Asks the scheduler for turns of 0.1 ms instead of about 3: a thread with little to do, on which
// others wait, then comes soon when it is woken, and one with much to do in the background soon
// makes way for one that is woken. Its share of the processor stays as it is. Without effect before
// Linux 6.12 (sched_setattr(2): sched_runtime under SCHED_OTHER).
void TakeShortTurns();

}  // namespace rewire
