// The processes below this one: starts a child, describes how a child ended, and ends descendants,
// whatever group or session they moved to. Owned by the only thread of the guard or the launcher,
// because StartChild() forks.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"

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

// Makes a descendant whose parent has ended a child of this process, from now on.
void AdoptDescendants();
// Reaps the ended children, except `others`, which their owners reap.
void ReapAdopted(const std::set<pid_t>& others);
// Returns the names and process ids of the running children except `others`: "python3 (4711)".
std::vector<std::string> RunningChildren(const std::set<pid_t>& others);
// Sends SIGKILL to every descendant except the `spared` children, until none is left. Returns false
// at the deadline, because a process in an uninterruptible call does not end.
bool KillDescendants(const std::set<pid_t>& spared, Time deadline);

}  // namespace rewire::control
