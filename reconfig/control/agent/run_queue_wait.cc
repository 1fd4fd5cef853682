// Reads the waits of threads from /proc; see run_queue_wait.h. Thread-compatible.
#include "reconfig/control/agent/run_queue_wait.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

namespace rewire::control {
namespace {

bool IsRunnable(const std::filesystem::path& task) {
  std::string text;
  std::getline(std::ifstream(task / "stat"), text);
  // The format is "TID (NAME) STATE", and NAME may contain brackets.
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text[name_end + 2] == 'R';
}

}  // namespace

Duration RunQueueWait::SinceLast(pid_t pid, Time now) {
  Process& process = processes_[pid];
  const bool first = process.read == Time{};
  const Duration interval = now - std::exchange(process.read, now);
  const std::map<pid_t, Thread> before = std::exchange(process.threads, {});
  Duration longest{};
  std::error_code error;
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  // The process may end meanwhile, so no call may throw.
  for (std::filesystem::directory_iterator task(tasks, error), end; !error && task != end;
       task.increment(error)) {
    Thread thread;
    std::ifstream in(task->path() / "schedstat");
    if (!(in >> thread.ran_ns >> thread.waited_ns >> thread.runs)) continue;
    const auto tid = static_cast<pid_t>(std::stol(task->path().filename()));
    if (const auto was = before.find(tid); was != before.end()) {
      Duration waited{};
      if (thread.ran_ns != was->second.ran_ns || thread.runs != was->second.runs) {
        // The kernel adds a wait to waited_ns when that wait ends.
        waited =
            std::chrono::nanoseconds(thread.waited_ns - was->second.waited_ns) - was->second.ahead;
      } else if (IsRunnable(task->path())) {
        waited = interval;
        thread.ahead = was->second.ahead + interval;
      }
      longest = std::max(longest, std::min(waited, interval));
    }
    process.threads.emplace(tid, thread);
  }
  return first ? Duration{} : longest;
}

void RunQueueWait::KeepOnly(const std::set<pid_t>& pids) {
  std::erase_if(processes_, [&](const auto& each) { return !pids.contains(each.first); });
}

}  // namespace rewire::control
