#include "tests/process/trainer/job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "reconfig/base/clock.h"
#include "reconfig/base/socket.h"
#include "tests/fakes/process/sim_libraries.h"

namespace rewire::trainer {
namespace {

pid_t Spawn(int rank, int world, const std::string& port, const std::vector<std::string>& arguments,
            int output) {
  std::vector<std::string> environment = {"RANK=" + std::to_string(rank),
                                          "LOCAL_RANK=" + std::to_string(rank),
                                          "WORLD_SIZE=" + std::to_string(world),
                                          "MASTER_ADDR=127.0.0.1",
                                          "MASTER_PORT=" + port,
                                          "LD_LIBRARY_PATH=" + SimLibraries(SIMGPU)};
  for (char** e = environ; *e != nullptr; ++e) {
    // Variables of a sanitizer, and those that NCCL's host code needs here.
    if (strstr(*e, "SAN_OPTIONS=") != nullptr || strncmp(*e, "NCCL_", 5) == 0) {
      environment.emplace_back(*e);
    }
  }
  std::vector<char*> envp, argv;
  for (std::string& e : environment) envp.push_back(e.data());
  envp.push_back(nullptr);
  std::vector<std::string> command = {GPT_TRAIN};
  command.insert(command.end(), arguments.begin(), arguments.end());
  for (std::string& a : command) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_adddup2(&actions, output, 2);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, GPT_TRAIN, &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

std::string FreePort() {
  UniqueFd listener;
  std::string bound;
  if (!ListenTcp("127.0.0.1:0", &listener, &bound).ok()) return "1";
  return bound.substr(bound.rfind(':') + 1);
}

}  // namespace

bool JobResult::ok() const {
  for (const int s : statuses) {
    if (s != 0) return false;
  }
  return true;
}

std::string JobResult::Final() const {
  const size_t at = output.rfind("final step");
  return at == std::string::npos ? output : output.substr(at, output.find('\n', at) - at);
}

TempFolder::TempFolder() {
  char path[] = "/tmp/rewire_trainer_XXXXXX";
  if (mkdtemp(path) != nullptr) path_ = path;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

JobResult RunJob(int world, const std::vector<std::string>& arguments) {
  JobResult result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {{-1}, "pipe2 failed"};
  UniqueFd reader(ends[0]), writer(ends[1]);
  const std::string port = FreePort();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world; ++rank) {
    pids.push_back(Spawn(rank, world, port, arguments, writer.get()));
  }
  writer.reset();
  const Time deadline = Now() + seconds(60);
  bool late = false;
  for (;;) {
    late = !WaitReady(reader.get(), POLLIN, deadline);
    char chunk[4096];
    const ssize_t n = late ? 0 : read(reader.get(), chunk, sizeof chunk);
    if (n <= 0) break;
    result.output.append(chunk, static_cast<size_t>(n));
  }
  for (const pid_t pid : pids) {
    int status = -1;
    if (pid < 0) {
      result.statuses.push_back(-1);
      continue;
    }
    if (late) kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    result.statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  return result;
}

}  // namespace rewire::trainer
