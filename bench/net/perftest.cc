#include "bench/net/perftest.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::bench {
namespace {

constexpr Duration kDeadline = seconds(60);

// perftest's default port, 18515, and the state of a listener, as in the kernel's tables.
constexpr std::string_view kPort = ":4853";
constexpr std::string_view kListens = "0A";

bool Listens() {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string slot, local, remote, state;
      words >> slot >> local >> remote >> state;
      if (state == kListens && local.ends_with(kPort)) return true;
    }
  }
  return false;
}

// A child process whose output this process reads. The destructor kills the child.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    output_ = UniqueFd(ends[0]);
    const UniqueFd theirs(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDERR_FILENO);
    std::vector<char*> words;
    for (std::string& word : arguments) words.push_back(word.data());
    words.push_back(nullptr);
    if (posix_spawnp(&pid_, words[0], &actions, nullptr, words.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Program() {
    if (pid_ == -1) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Returns whether the child has closed its output or written something.
  [[nodiscard]] bool Ended() const {
    pollfd waits{output_.get(), 0, 0};
    return poll(&waits, 1, 0) > 0;
  }
  // Returns the output after the child has closed it.
  absl::StatusOr<std::string> Output(Time deadline) {
    if (pid_ == -1) return absl::UnavailableError("it does not start");
    std::string all;
    for (;;) {
      pollfd waits{output_.get(), POLLIN, 0};
      const auto left = static_cast<int>(ToMilliseconds(deadline - Now()));
      if (left <= 0 || poll(&waits, 1, left) == 0) {
        return absl::DeadlineExceededError(absl::StrCat("it does not end: ", all));
      }
      char some[4096];
      const ssize_t n = read(output_.get(), some, sizeof some);
      if (n <= 0) break;
      all.append(some, static_cast<size_t>(n));
    }
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    if (status == 0) return all;
    return absl::UnavailableError(absl::StrCat("wait status ", status, ": ", all));
  }

 private:
  UniqueFd output_;
  pid_t pid_ = -1;
};

std::vector<std::string> On(const PerftestEnd& end, const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"taskset", "-c", absl::StrCat(end.processor)};
  all.insert(all.end(), arguments.begin(), arguments.end());
  all.insert(all.end(), {"-F", "-d", end.device});
  return all;
}

absl::StatusOr<std::string> Run(const std::vector<std::string>& arguments,
                                const PerftestEnd& server, const PerftestEnd& client) {
  const Time deadline = Now() + kDeadline;
  Program listener(On(server, arguments));
  while (!Listens()) {
    if (listener.Ended()) return listener.Output(deadline);
    if (Now() > deadline) return absl::DeadlineExceededError("the server does not listen");
    std::this_thread::sleep_for(milliseconds(20));
  }
  std::vector<std::string> words = On(client, arguments);
  words.push_back(server.address);
  absl::StatusOr<std::string> output = Program(words).Output(deadline);
  if (!output.ok()) return output;
  if (const auto theirs = listener.Output(deadline); !theirs.ok()) return theirs;
  return output;
}

}  // namespace

absl::StatusOr<std::vector<double>> ParsePerftest(std::string_view output, size_t bytes) {
  std::istringstream lines{std::string(output)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<double> numbers;
    bool fine = true;
    for (std::string word; words >> word;) {
      double number = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
      fine = fine && error == std::errc() && end == word.data() + word.size();
      numbers.push_back(number);
    }
    if (!fine || numbers.size() < 5 || numbers[0] != static_cast<double>(bytes)) continue;
    for (const double number : numbers) {
      if (!std::isfinite(number)) {
        return absl::UnavailableError("perftest did not find out how fast its clock is");
      }
    }
    return numbers;
  }
  return absl::DataLossError(
      absl::StrCat("perftest printed no line of ", bytes, " bytes: ", std::string(output)));
}

absl::StatusOr<std::string> RunPerftest(const std::vector<std::string>& arguments,
                                        const PerftestEnd& server, const PerftestEnd& client) {
  absl::StatusOr<std::string> output = Run(arguments, server, client);
  if (output.ok()) return output;
  return absl::Status(output.status().code(),
                      absl::StrCat(absl::StrJoin(arguments, " "), ": ", output.status().message()));
}

}  // namespace rewire::bench
