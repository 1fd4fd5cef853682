#include "shim/core/exit_gate.h"

namespace rewire::shim {

int ExitGate::Close(Time deadline) {
  MutexLock lock(&mutex_);
  if (closing_.exchange(true, std::memory_order_acq_rel)) return 0;
  while (inside_ > 0 && changed_.WaitUntil(&mutex_, deadline)) {
  }
  closed_ = true;
  return inside_;
}

bool ExitGate::Enter(Purpose purpose) {
  std::call_once(entered_, used_);
  MutexLock lock(&mutex_);
  if (closed_ || (purpose == Purpose::kWork && Closing())) return false;
  ++inside_;
  return true;
}

void ExitGate::Leave() {
  std::call_once(left_, used_);
  MutexLock lock(&mutex_);
  --inside_;
  changed_.NotifyAll();
}

}  // namespace rewire::shim
