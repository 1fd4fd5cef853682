// Scheduling of the calling thread on a machine that training keeps busy. Thread-safe.
#pragma once

namespace rewire {

// Asks the scheduler for time slices of 0.1 ms instead of about 3 ms. A mostly idle thread on which
// others wait then runs soon after its wake-up, and a busy background thread soon yields to a woken
// one. The thread's share of the processor is unchanged. No effect before Linux 6.12
// (sched_setattr(2): sched_runtime under SCHED_OTHER).
void TakeShortTurns();

}  // namespace rewire
