// Starting one process, and knowing how one ended. Called from the launcher's only thread (it
// forks).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire {

struct ChildSpec {
  std::vector<std::string> argv;  // argv[0] is searched for along PATH
  std::vector<std::string> environment;
  int stdin_fd = -1;  // -1: /dev/null
  int stdout_fd = 1;
  int stderr_fd = 2;
  int keep_fd = -1;          // stays open in the child under the same number
  bool new_session = false;  // otherwise a process group of its own
  int death_signal = 0;      // what it gets when this process dies
};

// Ok: the program runs. Not ok: it could not be executed (kNotFound, kPermissionDenied, ...), and
// no process is left.
absl::StatusOr<pid_t> StartChild(const ChildSpec& spec);

// How a process ended, from waitpid's status.
struct ChildEnd {
  int exit_code = 0;  // as a shell would say it: 128 + signal when killed
  int signal = 0;     // 0: it exited
  [[nodiscard]] bool good() const { return exit_code == 0; }
};
ChildEnd EndOf(int wait_status);
// "exited with status 3", "was killed by signal 9 (Killed)".
std::string Describe(const ChildEnd& end);

}  // namespace rewire
