#include "reconfig/base/event_loop.h"

#include <algorithm>

namespace rewire {
namespace {

// A wait for a time that is further away ends early, since poll(2) takes an int.
constexpr int64_t kLongestMs = 60000;

}  // namespace

void PollSet::Add(int fd, int events) {
  if (fd >= 0) polls_.push_back({fd, static_cast<short>(events), 0});
}

void PollSet::Until(Time when) { until_ = std::min(until_.value_or(when), when); }

void PollSet::Wait() {
  int timeout = -1;
  if (until_) {
    // Rounded up: a loop that wakes before its time would spin until then.
    const auto left = std::chrono::ceil<milliseconds>(*until_ - Now()).count();
    timeout = static_cast<int>(std::clamp<int64_t>(left, 0, kLongestMs));
  }
  if (poll(polls_.data(), polls_.size(), timeout) < 0) polls_.clear();
  std::erase_if(polls_, [](const pollfd& p) { return p.revents == 0; });
  std::ranges::sort(polls_, {}, &pollfd::fd);
}

int PollSet::Ready(int fd) const {
  const auto found = std::ranges::lower_bound(polls_, fd, {}, &pollfd::fd);
  return found == polls_.end() || found->fd != fd ? 0 : found->revents;
}

}  // namespace rewire
