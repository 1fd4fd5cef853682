#include "shim/core/exit_gate.h"

namespace rewire::shim {

int ExitGate::Close(Time deadline) {
  MutexLock lock(&mutex_);
  while (inside_ > 0 && changed_.WaitUntil(&mutex_, deadline)) {
  }
  closed_ = true;
  return inside_;
}

bool ExitGate::Enter() {
  std::call_once(entered_, used_);
  MutexLock lock(&mutex_);
  if (closed_) return false;
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
