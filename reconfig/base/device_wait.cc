#include "reconfig/base/device_wait.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

namespace rewire {
namespace {

// Most copies end within this number of yields, before the waiting thread starts to sleep.
constexpr int kYields = 200;
constexpr int64_t kFirstPause = 10'000;
constexpr int64_t kLongestPause = 500'000;

template <typename Query>
CUresult Wait(const Query& query, Duration patience) {
  const Time deadline = Now() + patience;
  int64_t pause = kFirstPause;
  for (int turn = 0;; ++turn) {
    const CUresult result = query();
    if (result != CUDA_ERROR_NOT_READY || Now() >= deadline) return result;
    if (turn < kYields) {
      sched_yield();
      continue;
    }
    const timespec time = {0, static_cast<decltype(timespec::tv_nsec)>(pause)};
    nanosleep(&time, nullptr);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace

CUresult WaitForStream(const CudaDriver& driver, CUstream stream, Duration patience) {
  return Wait([&] { return driver.StreamQuery(stream); }, patience);
}

CUresult WaitForEvent(const CudaDriver& driver, CUevent event, Duration patience) {
  return Wait([&] { return driver.EventQuery(event); }, patience);
}

std::string DescribeWait(const CudaDriver& driver, const std::string& operation, CUresult result,
                         Duration patience) {
  if (result != CUDA_ERROR_NOT_READY) return driver.Describe(operation.c_str(), result);
  return operation + ": timed out after " +
         std::to_string(static_cast<int64_t>(ToMilliseconds(patience))) +
         " ms (the device did not complete its work)";
}

}  // namespace rewire
