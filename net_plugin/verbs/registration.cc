#include "net_plugin/verbs/registration.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <atomic>
#include <utility>

#include "net_plugin/verbs/staging.h"
#include "reconfig/base/log.h"
#include "reconfig/base/mutex.h"

namespace rewire::net {
namespace {

absl::StatusOr<std::shared_ptr<rdma::MemoryRegion>> RegisterOn(Nic* nic, const Memory& m) {
  if (m.dmabuf < 0) return nic->memory().Get(m.data, m.bytes);
  return nic->memory().GetDmabuf(m.data, m.bytes, m.offset, m.dmabuf);
}

// Returns an invalid descriptor if descriptors are scarce: the program needs them more than a
// fallback NIC that may never be used.
UniqueFd Kept(int fd) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  UniqueFd kept(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (kept.valid() && static_cast<rlim_t>(kept.get()) > limit.rlim_cur / 2) kept.reset();
  return kept;
}

}  // namespace

// Shared with the background work, which may run after the memory is gone.
struct Registration::Late {
  std::atomic<bool> done{false};
  Mutex mutex;
  bool gone REWIRE_GUARDED_BY(mutex) = false;
  std::shared_ptr<rdma::MemoryRegion> region;  // immutable after `done`
};

Registration::Registration(const Nics& nics, const Memory& memory,
                           std::function<void(std::function<void()>)> run)
    : nics_(nics),
      memory_(memory),
      carried_(memory.type == kPtrHost || Staging::Possible()),
      run_(std::move(run)),
      late_(nics.all.size() - nics.chosen) {}

absl::StatusOr<std::unique_ptr<Registration>> Registration::Make(
    const Nics& nics, const Memory& memory, std::function<void(std::function<void()>)> run) {
  std::unique_ptr<Registration> out(new Registration(nics, memory, std::move(run)));
  for (size_t i = 0; i < nics.chosen; ++i) {
    auto region = RegisterOn(nics.all[i].get(), memory);
    if (!region.ok() && nics.all[i]->HasLink()) return region.status();
    out->regions_.push_back(region.ok() ? *std::move(region) : nullptr);
  }
  if (memory.dmabuf >= 0 && !out->late_.empty()) {
    out->dmabuf_ = Kept(memory.dmabuf);
    out->memory_.dmabuf = out->dmabuf_.get();
    if (!out->dmabuf_.valid()) out->late_.clear();
  }
  return out;
}

absl::StatusOr<void*> Registration::MakeHandle(const Nics& nics, const Memory& memory,
                                               std::function<void(std::function<void()>)> run) {
  absl::StatusOr<std::unique_ptr<Registration>> made = Make(nics, memory, std::move(run));
  if (!made.ok()) return made.status();
  return made->release();
}

Registration::~Registration() {
  for (const std::shared_ptr<Late>& late : late_) {
    if (late == nullptr) continue;
    MutexLock lock(&late->mutex);
    late->gone = true;
    late->region.reset();
  }
}

const rdma::MemoryRegion* Registration::Find(size_t nic) const {
  if (nic < nics_.chosen) return regions_[nic].get();
  const size_t at = nic - nics_.chosen;
  if (at >= late_.size() || late_[at] == nullptr) return nullptr;
  return late_[at]->done.load(std::memory_order_acquire) ? late_[at]->region.get() : nullptr;
}

const rdma::MemoryRegion* Registration::Want(size_t nic) {
  const size_t at = nic - nics_.chosen;
  if (nic < nics_.chosen || at >= late_.size() || late_[at] != nullptr) return Find(nic);
  late_[at] = std::make_shared<Late>();
  run_([late = late_[at], on = nics_.all[nic], memory = memory_] {
    MutexLock lock(&late->mutex);
    if (late->gone) return;
    auto region = RegisterOn(on.get(), memory);
    if (region.ok()) {
      late->region = *std::move(region);
    } else {
      REWIRE_WARN("net plugin: register memory on fallback %s: %s", on->name().c_str(),
                  std::string(region.status().message()).c_str());
    }
    late->done.store(true, std::memory_order_release);
  });
  return Find(nic);
}

}  // namespace rewire::net
