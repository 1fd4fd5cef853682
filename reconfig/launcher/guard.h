// `rewire run` is two processes: the guard, which the user started, and its child, the launcher.
// Each is an ancestor of every process of the job, or becomes one; each notices when the other is
// killed, and then kills what is left of the job. Called from the only thread of `rewire run`.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "reconfig/launcher/job_directory.h"

namespace rewire {

// Runs `launch` in a child process and passes on the signals that ask for the job's end. Gives the
// status for exit(3) after the last process of the job has ended and its folder is removed.
// launch: gets a descriptor that becomes readable when the guard has ended. directory: may be null.
absl::StatusOr<int> RunGuarded(JobDirectory* directory,
                               const std::function<int(int guard_fd)>& launch);

}  // namespace rewire
