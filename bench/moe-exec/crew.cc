#include "bench/moe-exec/crew.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

namespace rewire::bench {

struct Crew::Desk {
  // Per rank: the number of its calls, and its values for odd and even calls.
  std::atomic<uint64_t> come[kMost];
  std::atomic<uint64_t> brought[2][kMost];
};

namespace {

constexpr Duration kPatience = seconds(60);
constexpr size_t kDeskBytes = 4096;

char* Map(size_t bytes) {
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
  return static_cast<char*>(mapped);
}

}  // namespace

Crew::Crew(uint32_t ranks, size_t bytes)
    : ranks_(ranks),
      bytes_(kDeskBytes + bytes),
      mapped_(Map(bytes_)),
      desk_(reinterpret_cast<Desk*>(mapped_)),
      memory_(mapped_ + kDeskBytes) {
  static_assert(sizeof(Desk) <= kDeskBytes);
}

Crew::~Crew() { ::munmap(mapped_, bytes_); }

std::vector<int> Crew::Run(const std::function<int(uint32_t rank)>& body, Duration deadline) {
  std::vector<pid_t> pids;
  const pid_t parent = ::getpid();
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      const int status = body(rank);
      ::fflush(nullptr);
      ::_exit(status);
    }
    pids.push_back(pid);
  }
  std::vector<int> statuses(ranks_, -1);
  const Time end = Now() + deadline;
  bool killed = false;
  for (size_t left = ranks_; left > 0;) {
    if (!killed && Now() >= end) {
      for (uint32_t i = 0; i < ranks_; ++i) {
        if (statuses[i] < 0) ::kill(pids[i], SIGKILL);
      }
      killed = true;
    }
    for (uint32_t i = 0; i < ranks_; ++i) {
      int status = 0;
      if (statuses[i] >= 0 || ::waitpid(pids[i], &status, WNOHANG) != pids[i]) continue;
      statuses[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      --left;
    }
    if (left > 0) std::this_thread::sleep_for(milliseconds(2));
  }
  return statuses;
}

bool Crew::Largest(uint32_t rank, uint64_t mine, uint64_t* largest) const {
  const uint64_t time = desk_->come[rank].load(std::memory_order_relaxed) + 1;
  desk_->brought[time % 2][rank].store(mine, std::memory_order_relaxed);
  desk_->come[rank].store(time, std::memory_order_release);
  const Time deadline = Now() + kPatience;
  *largest = 0;
  for (uint32_t other = 0; other < ranks_; ++other) {
    while (desk_->come[other].load(std::memory_order_acquire) < time) {
      if (Now() >= deadline) return false;
      std::this_thread::sleep_for(microseconds(50));
    }
    *largest = std::max(*largest, desk_->brought[time % 2][other].load(std::memory_order_relaxed));
  }
  return true;
}

bool Crew::Meet(uint32_t rank) const {
  uint64_t ignored = 0;
  return Largest(rank, 0, &ignored);
}

}  // namespace rewire::bench
