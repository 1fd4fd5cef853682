// The descendants of this process, whatever group or session they moved to. Owned by the only
// thread of the guard or the launcher.
#pragma once

#include <sys/types.h>

#include <set>

#include "reconfig/base/clock.h"

namespace rewire::control {

// Makes a descendant whose parent has ended a child of this process, from now on.
void AdoptDescendants();
// Reaps the ended children, except `others`, which their owners reap.
void ReapAdopted(const std::set<pid_t>& others);
// Sends SIGKILL to every descendant except the `spared` children, until none is left. Returns false
// at the deadline, because a process in an uninterruptible call does not end.
bool KillDescendants(const std::set<pid_t>& spared, Time deadline);

}  // namespace rewire::control
