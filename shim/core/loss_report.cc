#include "shim/core/loss_report.h"

namespace rewire::shim {

void LossReport::Begin(const std::string& reason) {
  MutexLock lock(&mutex_);
  told_ = false;
  reported_before_ = services_->reported_losses();
  reason_ = reasons_.insert(reason).first->c_str();
  refused_ = nullptr;
  active_.store(true, std::memory_order_seq_cst);
}

void LossReport::End() {
  MutexLock lock(&mutex_);
  active_.store(false, std::memory_order_seq_cst);
  living_.store(UINT32_MAX, std::memory_order_release);
  refused_ = nullptr;
}

bool LossReport::Refuse(uint32_t ranks, bool several) {
  if (!Active()) return false;
  MutexLock lock(&mutex_);
  const bool too_many = !several && ranks > living_.load(std::memory_order_acquire);
  const bool told = told_ || services_->reported_losses() != reported_before_;
  if (told && !too_many) return false;
  told_ = true;
  refused_ = reason_;
  return true;
}

const char* LossReport::Refused() const {
  MutexLock lock(&mutex_);
  return refused_;
}

}  // namespace rewire::shim
