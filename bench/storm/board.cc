#include "bench/storm/board.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace rewire::bench {
namespace {

constexpr int kStackSignal = SIGUSR2;

void WriteStack(int) {
  void* frames[48];
  const int depth = ::backtrace(frames, 48);
  ::backtrace_symbols_fd(frames, depth, 2);
  constexpr char kEnd[] = "--\n";
  (void)!::write(2, kEnd, sizeof kEnd - 1);
}

void WriteStackAndEnd(int signal) {
  WriteStack(signal);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

std::string Place::Text() const {
  return std::string(what_.load()) + ", step " + std::to_string(step_.load()) + ", communicator " +
         std::to_string(communicator_.load());
}

Watchdog::Watchdog(int rank, std::vector<std::unique_ptr<Place>>* places, Duration patience)
    : rank_(rank), places_(places), patience_(patience) {
  void* unused[1];
  ::backtrace(unused, 1);  // loads the libraries that the signal handler needs
  ::signal(kStackSignal, &WriteStack);
  for (const int crash : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE}) ::signal(crash, &WriteStackAndEnd);
  thread_ = std::thread([this] { Run(); });
}

Watchdog::~Watchdog() {
  stop_.store(true);
  thread_.join();
}

void Watchdog::Report() {
  for (size_t i = 0; i < places_->size(); ++i) {
    const Place& place = *(*places_)[i];
    if (place.ended()) continue;
    std::fprintf(stderr, "storm: rank %d thread %zu hangs at %s\n", rank_, i, place.Text().c_str());
  }
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    std::fprintf(stderr, "storm: rank %d: stack of %s\n", rank_, name.c_str());
    const auto thread = static_cast<pid_t>(std::stol(task.path().filename()));
    static_cast<void>(::syscall(SYS_tgkill, ::getpid(), thread, kStackSignal));
    std::this_thread::sleep_for(milliseconds(20));  // one stack after the other
  }
}

void Watchdog::Run() {
  ::pthread_setname_np(::pthread_self(), "watchdog");
  std::vector<uint64_t> seen(places_->size(), 0);
  std::vector<Time> since(places_->size(), Now());
  while (!stop_.load()) {
    std::this_thread::sleep_for(milliseconds(50));
    for (size_t i = 0; i < places_->size(); ++i) {
      const Place& place = *(*places_)[i];
      if (place.ended() || place.changes() != seen[i]) {
        seen[i] = place.changes();
        since[i] = Now();
      } else if (Now() - since[i] > patience_) {
        Report();
        ::_exit(kHung);
      }
    }
  }
}

}  // namespace rewire::bench
