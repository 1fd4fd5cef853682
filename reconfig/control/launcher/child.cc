// Starts, reaps and ends processes; see child.h. Owned by the only thread of the guard or the
// launcher.
#include "reconfig/control/launcher/child.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::control {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& t : texts) out.push_back(const_cast<char*>(t.c_str()));
  out.push_back(nullptr);
  return out;
}

// Runs in the child, with only calls that are safe between fork and exec. Returns the failed call.
const char* Become(const ChildSpec& spec, pid_t parent, char* const* argv, char* const* env) {
  if ((spec.new_session ? setsid() : setpgid(0, 0)) < 0) return "process group";
  if (spec.death_signal != 0) {
    if (prctl(PR_SET_PDEATHSIG, spec.death_signal) != 0) return "prctl";
    if (getppid() != parent) _exit(127);  // the parent died before the prctl
  }
  int in = spec.stdin_fd;
  if (in < 0 && (in = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0) return "/dev/null";
  // dup2 to the same descriptor would leave close-on-exec set, so each is duplicated first.
  const int wanted[3] = {in, spec.stdout_fd, spec.stderr_fd};
  int high[3];
  for (int i = 0; i < 3; ++i) {
    high[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, 3);
    if (high[i] < 0) return "descriptors";
  }
  for (int i = 0; i < 3; ++i) {
    if (dup2(high[i], i) < 0) return "descriptors";
  }
  if (spec.keep_fd >= 0 && fcntl(spec.keep_fd, F_SETFD, 0) != 0) return "descriptors";
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(argv[0], argv, env);
  return "exec";
}

pid_t ParentOf(const char* pid) {
  std::string text;
  std::getline(std::ifstream(std::string("/proc/") + pid + "/stat"), text);
  // The format is "PID (NAME) STATE PARENT", and NAME may contain brackets.
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos || text.size() < name_end + 4) return 0;
  return static_cast<pid_t>(strtol(text.c_str() + name_end + 4, nullptr, 10));
}

std::vector<pid_t> Children() {
  std::vector<pid_t> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  while (const dirent* entry = proc == nullptr ? nullptr : readdir(proc.get())) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (ParentOf(entry->d_name) == getpid()) {
      out.push_back(static_cast<pid_t>(strtol(entry->d_name, nullptr, 10)));
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<pid_t> StartChild(const ChildSpec& spec) {
  if (spec.argv.empty()) return absl::InvalidArgumentError("no program to run");
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("pipe: ", strerror(errno)));
  }
  UniqueFd read_end(fds[0]);
  UniqueFd write_end(fds[1]);
  const std::vector<char*> argv = Pointers(spec.argv);
  const std::vector<char*> env = Pointers(spec.environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ResourceExhaustedError(absl::StrCat("fork: ", strerror(errno)));
  if (pid == 0) {
    const char* what = Become(spec, parent, argv.data(), env.data());
    const int error = errno;
    [[maybe_unused]] ssize_t n = write(write_end.get(), &error, sizeof error);
    n = write(write_end.get(), what, strlen(what));
    _exit(127);
  }
  write_end.reset();
  // The exec closes the pipe. Otherwise the pipe contains the reason why there was no exec.
  int error = 0;
  ssize_t n = 0;
  do {
    n = read(read_end.get(), &error, sizeof error);
  } while (n < 0 && errno == EINTR);
  if (n != ssize_t{sizeof error}) return pid;
  char what[64] = "";
  const ssize_t length = read(read_end.get(), what, sizeof what - 1);
  what[length > 0 ? length : 0] = '\0';
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  const std::string text =
      strcmp(what, "exec") == 0
          ? absl::StrCat("cannot run '", spec.argv[0], "': ", strerror(error))
          : absl::StrCat("cannot start '", spec.argv[0], "': ", what, ": ", strerror(error));
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == EACCES) return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

ChildEnd EndOf(int wait_status) {
  ChildEnd out;
  if (WIFSIGNALED(wait_status)) {
    out.signal = WTERMSIG(wait_status);
    out.exit_code = 128 + out.signal;
  } else {
    out.exit_code = WEXITSTATUS(wait_status);
  }
  return out;
}

std::string Describe(const ChildEnd& end) {
  if (end.signal == 0) return absl::StrCat("exited with status ", end.exit_code);
  return absl::StrCat("was killed by signal ", end.signal, " (", strsignal(end.signal), ")");
}

void AdoptDescendants() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    REWIRE_WARN("prctl(PR_SET_CHILD_SUBREAPER): %s: processes that members start may outlive them",
                strerror(errno));
  }
}

void ReapAdopted(const std::set<pid_t>& others) {
  for (;;) {
    siginfo_t info{};
    const int rc = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);
    if (rc != 0 || info.si_pid == 0 || others.contains(info.si_pid)) return;
    waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

std::vector<std::string> RunningChildren(const std::set<pid_t>& others) {
  std::vector<std::string> running;
  for (const pid_t child : Children()) {
    siginfo_t info{};
    const bool ended =
        waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != 0;
    if (ended || others.contains(child)) continue;
    std::string name;
    std::getline(std::ifstream(absl::StrCat("/proc/", child, "/comm")), name);
    running.push_back(absl::StrCat(name, " (", child, ")"));
  }
  return running;
}

bool KillDescendants(const std::set<pid_t>& spared, Time deadline) {
  // Only children are signalled, because the process id of an unreaped child cannot be reused. The
  // children of a killed child become this process's children, so each pass is one generation
  // deeper.
  for (int pause = 0;; pause = std::min(pause + 1, 20)) {
    bool left = false;
    for (const pid_t child : Children()) {
      if (spared.contains(child)) continue;
      left = true;
      kill(child, SIGKILL);
      waitpid(child, nullptr, WNOHANG);
    }
    if (!left) return true;
    if (Now() >= deadline) return false;
    poll(nullptr, 0, pause);
  }
}

}  // namespace rewire::control
