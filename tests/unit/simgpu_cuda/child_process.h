// The second process of a test: simgpu_cuda_child with a scenario. Owned by one thread.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

namespace simgpu_test {

// A child whose stdin is held open, with stdout and stderr in one pipe. `inherited`, if it is a
// descriptor, becomes the child's descriptor 3.
class Child {
 public:
  Child(std::vector<std::string> arguments, const std::vector<std::string>& settings = {},
        int inherited = -1) {
    int in[2], out[2];
    EXPECT_EQ(::pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 2);
    if (inherited >= 0) ::posix_spawn_file_actions_adddup2(&actions, inherited, 3);
    arguments.insert(arguments.begin(), SIMGPU_CHILD);
    std::vector<char*> argv, environment;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (std::string_view(*entry).substr(0, 7) != "SIMGPU_") environment.push_back(*entry);
    }
    for (const auto& setting : settings) environment.push_back(const_cast<char*>(setting.c_str()));
    environment.push_back(nullptr);
    EXPECT_EQ(
        ::posix_spawn(&pid_, SIMGPU_CHILD, &actions, nullptr, argv.data(), environment.data()), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    stdin_ = in[1];
    output_ = out[0];
  }
  ~Child() {
    Wait();
    ::close(output_);
  }

  std::string ReadLine() {
    std::string line;
    char c = 0;
    while (::read(output_, &c, 1) == 1 && c != '\n') line += c;
    return line;
  }
  void Kill() { ::kill(pid_, SIGKILL); }
  // Returns the exit status, or 1000 + the signal that ended the child.
  int Wait() {
    if (pid_ == 0) return status_;
    ::close(stdin_);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    return status_;
  }

 private:
  pid_t pid_ = 0;
  int stdin_ = -1;
  int output_ = -1;
  int status_ = -1;
};

}  // namespace simgpu_test
