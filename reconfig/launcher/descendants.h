// The processes that this process has started, with all that those have started, whatever group or
// session they moved to. Called from the only thread of the guard and of the launcher.
#pragma once

#include <sys/types.h>

#include <set>

#include "reconfig/base/clock.h"

namespace rewire {

// From now on a descendant whose parent has ended becomes a child of this process.
void AdoptDescendants();
// Reaps the ended children that are not in `others`, who reap theirs themselves.
void ReapAdopted(const std::set<pid_t>& others);
// SIGKILL to every descendant except `spared` children, until none is left. False at the deadline:
// a process in an uninterruptible call does not end.
bool KillDescendants(const std::set<pid_t>& spared, Time deadline);

}  // namespace rewire
