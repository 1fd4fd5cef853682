#include "bench/failover/fault.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace rewire::bench {

Fault::Fault(std::string_view words) : words_(words) {
  const std::string line = "exec fault " + words_;
  const char* const arguments[] = {"sh", "-c", line.c_str(), nullptr};
  if (posix_spawn(&pid_, "/bin/sh", nullptr, nullptr, const_cast<char* const*>(arguments),
                  environ) != 0) {
    pid_ = -1;
  }
}

Fault::~Fault() {
  if (pid_ == -1) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Fault::Running() {
  if (pid_ == -1 || waitpid(pid_, &status_, WNOHANG) == 0) return pid_ != -1;
  pid_ = -1;
  return false;
}

absl::Status Fault::Result() const {
  if (status_ == 0) return absl::OkStatus();
  if (status_ == -1)
    return absl::InternalError(absl::StrCat("run `fault ", words_, "`: no process"));
  return absl::InternalError(
      WIFEXITED(status_)
          ? absl::StrCat("run `fault ", words_, "`: exit status ", WEXITSTATUS(status_))
          : absl::StrCat("run `fault ", words_, "`: killed by signal ", WTERMSIG(status_)));
}

}  // namespace rewire::bench
