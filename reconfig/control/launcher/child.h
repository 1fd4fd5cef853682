// Starts one process and describes how a process ended. Owned by the launcher's thread, the only
// thread of the process, because StartChild() forks.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::control {

struct ChildSpec {
  std::vector<std::string> argv;  // argv[0] is searched for along PATH
  std::vector<std::string> environment;
  int stdin_fd = -1;  // -1: /dev/null
  int stdout_fd = 1;
  int stderr_fd = 2;
  int keep_fd = -1;          // stays open in the child under the same number
  bool new_session = false;  // otherwise a process group of its own
  int death_signal = 0;      // the signal that the child gets when this process dies
};

// Starts a program; ok: the program runs. Fails when the program cannot be executed (kNotFound,
// kPermissionDenied, ...); then no process is left.
absl::StatusOr<pid_t> StartChild(const ChildSpec& spec);

// The end of a process, from waitpid's status.
struct ChildEnd {
  int exit_code = 0;  // as in a shell: 128 + signal when killed
  int signal = 0;     // 0: exited
  [[nodiscard]] bool good() const { return exit_code == 0; }
};
ChildEnd EndOf(int wait_status);
// Returns "exited with status 3" or "was killed by signal 9 (Killed)".
std::string Describe(const ChildEnd& end);

}  // namespace rewire::control
