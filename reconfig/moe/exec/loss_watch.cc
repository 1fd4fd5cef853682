#include "reconfig/moe/exec/loss_watch.h"

#include <pthread.h>

#include "reconfig/base/status_macros.h"

namespace rewire::moe {
namespace {

constexpr Duration kLook = milliseconds(20);    // interval of checks on the other processes
constexpr Duration kRelease = milliseconds(2);  // the interval after a process has died
// Each byte of all words after a loss: the word exceeds every round's number.
constexpr unsigned char kEveryRound = 0x3f;

}  // namespace

absl::StatusOr<std::unique_ptr<LossWatch>> LossWatch::Create(JoinedNode* node) {
  std::unique_ptr<LossWatch> watch(new LossWatch(node));
  REWIRE_ASSIGN_OR_RETURN(watch->release_, CopyQueue::Make(node->cuda()));
  return watch;
}

void LossWatch::Start(CUcontext context) {
  thread_ = std::thread([this, context] { Run(context); });
}

void LossWatch::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    soon_.NotifyAll();
  }
  thread_.join();
}

std::optional<uint32_t> LossWatch::lost() const {
  const int lost = lost_;
  if (lost < 0) return std::nullopt;
  return static_cast<uint32_t>(lost);
}

void LossWatch::LookNow() {
  const std::optional<uint32_t> found = node_.page().FindLost();
  if (!found) return;
  int none = -1;
  if (!lost_.compare_exchange_strong(none, static_cast<int>(*found))) return;
  node_.page().Fail();
  node_.page().WakeOwn();
}

void LossWatch::Run(CUcontext context) {
  ::pthread_setname_np(::pthread_self(), "rewire-moe-look");
  (void)node_.cuda().CtxSetCurrent(context);
  mutex_.Lock();
  while (!stop_) {
    soon_.WaitUntil(&mutex_, Now() + (lost_ < 0 ? kLook : kRelease));
    if (lost_ < 0) LookNow();
    if (lost_ < 0) continue;
    // Repeat the write: a live process may still overwrite a word with a smaller round.
    (void)node_.cuda().MemsetD8Async(node_.memory().words(), kEveryRound, NodeMemory::word_bytes(),
                                     release_->stream());
  }
  mutex_.Unlock();
}

}  // namespace rewire::moe
