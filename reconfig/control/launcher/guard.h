// `rewire run` is two processes: the guard, which the user started, and its child, the launcher.
// Each is, or becomes, an ancestor of every process of the job. When one of them is killed, the
// other kills the rest of the job. Owned by the only thread of `rewire run`.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "reconfig/control/launcher/job_directory.h"

namespace rewire::control {

// Runs `launch` in a child process and forwards the signals that ask for the job's end. Returns the
// status for exit(3), after the last process of the job has ended and its folder is removed.
// launch: gets a descriptor that becomes readable when the guard has ended. directory: may be null.
absl::StatusOr<int> RunGuarded(JobDirectory* directory,
                               const std::function<int(int guard_fd)>& launch);

}  // namespace rewire::control
