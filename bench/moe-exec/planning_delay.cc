#include "bench/moe-exec/planning_delay.h"

#include <pthread.h>

#include <atomic>
#include <cstring>

namespace rewire::bench {
namespace {

decltype(CudaDriver::StreamWaitEvent) real_wait = nullptr;
const SimDevice* simulated = nullptr;
std::atomic<uint64_t> left_ns = 0;  // delay of the round, until it has been applied to the copies

bool OnBalancersThread() {
  char name[16] = "";
  ::pthread_getname_np(::pthread_self(), name, sizeof name);
  return std::strcmp(name, "rewire-moe") == 0;
}

// The balancer's thread lets its copies wait for the start of the round, once, after planning.
CUresult WaitForThePlan(CUstream stream, CUevent event, unsigned flags) {
  const CUresult waits = real_wait(stream, event, flags);
  if (waits != CUDA_SUCCESS || !OnBalancersThread()) return waits;
  if (const uint64_t ns = left_ns.exchange(0); ns > 0) simulated->Launch(stream, ns, [] {});
  return waits;
}

}  // namespace

void DelayCopies(const SimDevice* device, CudaDriver* driver) {
  simulated = device;
  real_wait = driver->StreamWaitEvent;
  driver->StreamWaitEvent = WaitForThePlan;
}

void SetPlanningTime(uint64_t ns) { left_ns = ns; }

}  // namespace rewire::bench
