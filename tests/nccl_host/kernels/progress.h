// An emulated kernel's wait for its peers. As on a device, the wait has no deadline and ends early
// only when the communicator's abort flag is set. A Progress is owned by the thread of one block,
// and the communicator must outlive it. Load() and Store() are thread-safe.
#pragma once

#include <immintrin.h>
#include <sched.h>
#include <time.h>

#include "tests/nccl_host/kernels/layout.h"

namespace nccl_host {

template <typename T>
T Load(const T* place) {
  return __atomic_load_n(place, __ATOMIC_ACQUIRE);
}
template <typename T>
void Store(T* place, T value) {
  __atomic_store_n(place, value, __ATOMIC_RELEASE);
}

class Progress {
 public:
  explicit Progress(const Communicator* communicator) : communicator_(communicator) {}

  [[nodiscard]] bool aborted() {
    if (!aborted_ && communicator_->abort_flag != nullptr && *communicator_->abort_flag != 0) {
      aborted_ = true;
    }
    return aborted_;
  }
  // Returns false if the communicator was aborted first.
  template <typename Condition>
  bool Until(Condition holds) {
    for (int turn = 0; !holds(); ++turn) {
      if (aborted()) return false;
      Relax(turn);
    }
    return true;
  }
  // Lets NCCL's proxy thread send the step that the kernel has just posted. On a device both run at
  // the same time. Here they may share a processor, and a kernel whose next data have arrived would
  // delay the send.
  static void LetProxySend() { ::sched_yield(); }
  // Yields the processor to the peers that share it.
  static void Relax(int turn) {
    constexpr int kSpins = 16;
    constexpr int kYields = 400;
    if (turn < kSpins) {
      _mm_pause();
    } else if (turn < kYields) {
      ::sched_yield();
    } else {
      const timespec pause{0, turn < 5 * kYields ? 20'000 : 100'000};
      ::nanosleep(&pause, nullptr);
    }
  }

 private:
  const Communicator* const communicator_;
  bool aborted_ = false;
};

}  // namespace nccl_host
