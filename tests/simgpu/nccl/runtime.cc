#include "tests/simgpu/nccl/runtime.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace simnccl {
namespace {

std::atomic<int> uses{0};
std::atomic<bool> ended{false};
const pid_t process = ::getpid();

void Fail(const char* what) {
  (void)std::fprintf(stderr, "simnccl: %s\n", what);
  std::abort();
}

void End() {
  if (::getpid() != process) return;  // a forked child has none of the threads
  ended.store(true);
  if (uses.load() > 0) Fail("the process exits while a thread is inside NCCL");
}

}  // namespace

RuntimeUse::RuntimeUse() {
  static const int registered = std::atexit(End);
  if (registered != 0) Fail("atexit failed");
  uses.fetch_add(1);
  if (ended.load()) Fail("a thread enters NCCL after the process's CUDA runtime has ended");
}

RuntimeUse::~RuntimeUse() { uses.fetch_sub(1); }

}  // namespace simnccl
