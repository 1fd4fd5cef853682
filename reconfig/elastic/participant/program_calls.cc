// Counts and ends the calls into the program; see program_calls.h. Thread-safe.
#include "reconfig/elastic/participant/program_calls.h"

namespace rewire::elastic {
namespace {

thread_local uint32_t inside = 0;

}  // namespace

absl::Status ProgramEnding() {
  return absl::UnavailableError(
      "the program ends without rewireDetach(): its exit handlers have begun");
}

ProgramCalls::Call::Call(ProgramCalls* calls) : calls_(calls) {
  if (calls_ == nullptr) return;
  MutexLock lock(&calls_->mutex_);
  allowed_ = !calls_->closed_;
  if (!allowed_) return;
  ++calls_->running_;
  ++inside;
}

ProgramCalls::Call::~Call() {
  if (calls_ == nullptr || !allowed_) return;
  MutexLock lock(&calls_->mutex_);
  --calls_->running_;
  --inside;
  calls_->changed_.NotifyAll();
}

bool ProgramCalls::Close(Time deadline) {
  closed_ = true;
  MutexLock lock(&mutex_);
  while (running_ > inside) {
    if (!changed_.WaitUntil(&mutex_, deadline) && running_ > inside) return false;
  }
  return true;
}

bool ProgramCalls::Inside() { return inside > 0; }

}  // namespace rewire::elastic
