#include "bench/overhead/job.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"

namespace rewire::bench {
namespace {

// Limit for a job that was asked to end, before it is killed.
constexpr Duration kEnding = seconds(20);

std::string EndOf(const std::string& path) {
  constexpr size_t kMost = 4000;
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return text.size() > kMost ? text.substr(text.size() - kMost) : text;
}

// Returns -1 if the process is still running at the deadline.
int WaitFor(pid_t pid, Time deadline) {
  int status = -1;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (Now() > deadline) return -1;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return status;
}

absl::Status RunCommand(const std::vector<std::string>& command, const std::string& output,
                        Duration longest) {
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return absl::UnavailableError("fork failed");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // the job ends with the benchmark
    const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(file, 1);
    dup2(file, 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = WaitFor(pid, Now() + longest);
  if (status == -1) {
    kill(pid, SIGTERM);
    if (WaitFor(pid, Now() + kEnding) == -1) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
    }
    return absl::DeadlineExceededError(absl::StrCat("the job took too long\n", EndOf(output)));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the job ended with wait status ", status, "\n", EndOf(output)));
}

}  // namespace

absl::StatusOr<std::vector<Samples>> RunJob(const JobOptions& options,
                                            const MemberOptions& member) {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "rewire-overhead-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat("no folder ", folder));
  }
  const auto remove = absl::MakeCleanup([&folder] {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  });
  const fs::path self = fs::read_symlink("/proc/self/exe");
  std::vector<std::string> command = {(self.parent_path() / "rewire").string(), "run"};
  command.insert(command.end(), {"-n", absl::StrCat(options.members), "--dir", folder + "/job"});
  if (options.simulated) command.emplace_back("--sim");
  command.insert(command.end(),
                 {"--", self.string(), "--member-task", member.task, "--member-out",
                  folder + "/samples.", "--rounds", absl::StrCat(member.rounds), "--zero",
                  absl::StrCat(member.zero), "--block", absl::StrCat(member.block), "--updates",
                  absl::StrCat(member.updates), "--tensors", member.tensors});
  REWIRE_RETURN_IF_ERROR(RunCommand(command, folder + "/output", options.longest));
  std::vector<Samples> all;
  for (uint32_t rank = 0; rank < options.members; ++rank) {
    REWIRE_ASSIGN_OR_RETURN(Samples samples,
                            Samples::Read(absl::StrCat(folder, "/samples.", rank)));
    all.push_back(std::move(samples));
  }
  return all;
}

}  // namespace rewire::bench
