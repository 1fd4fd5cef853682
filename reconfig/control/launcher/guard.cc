// Runs the launcher as a child; see guard.h. Owned by the guard's only thread.
#include "reconfig/control/launcher/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "reconfig/control/launcher/child.h"

namespace rewire::control {
namespace {

constexpr Duration kKillPatience = seconds(10);

absl::Status Failed(const char* call) {
  return absl::ResourceExhaustedError(absl::StrCat(call, ": ", strerror(errno)));
}

[[noreturn]] void Launch(JobDirectory* directory, int guard_fd,
                         const std::function<int(int)>& launch) {
  // The guard forwards the terminal's signals. In its own group the launcher gets each only once.
  setpgid(0, 0);
  AdoptDescendants();
  const int status = launch(guard_fd);
  KillDescendants({}, Now() + kKillPatience);
  // The guard may have been killed, so the launcher also removes the folder.
  if (directory != nullptr) directory->Remove();
  exit(status);
}

// Forwards signals until the launcher has ended. Returns its wait status.
int WaitForLauncher(pid_t launcher, int signals) {
  for (;;) {
    pollfd p{signals, POLLIN, 0};
    poll(&p, 1, 60000);
    signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == ssize_t{sizeof info}) {
      if (info.ssi_signo != SIGCHLD) kill(launcher, static_cast<int>(info.ssi_signo));
    }
    int status = 0;
    if (waitpid(launcher, &status, WNOHANG) == launcher) return status;
    ReapAdopted({launcher});
  }
}

}  // namespace

absl::StatusOr<int> RunGuarded(JobDirectory* directory, const std::function<int(int)>& launch) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return Failed("pipe");
  UniqueFd guard_ended(fds[0]);
  UniqueFd guard_lives(fds[1]);
  sigset_t set;
  sigemptyset(&set);
  // SIGTTOU is blocked because the launcher writes to the terminal from its own process group.
  for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTTOU}) sigaddset(&set, s);
  if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return Failed("sigprocmask");
  sigdelset(&set, SIGTTOU);
  const UniqueFd signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return Failed("signalfd");
  AdoptDescendants();
  const pid_t launcher = fork();
  if (launcher < 0) return Failed("fork");
  if (launcher == 0) {
    guard_lives.reset();
    Launch(directory, guard_ended.get(), launch);
  }
  const ChildEnd end = EndOf(WaitForLauncher(launcher, signals.get()));
  const bool gone = KillDescendants({}, Now() + kKillPatience);
  if (directory != nullptr) directory->Remove();
  if (end.signal != 0) {
    std::cerr << "rewire: the launcher " << Describe(end)
              << "; every process of the job was killed\n";
  }
  if (!gone) std::cerr << "rewire: a process of the job did not end within 10 s after SIGKILL\n";
  return end.exit_code;
}

}  // namespace rewire::control
