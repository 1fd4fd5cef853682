#include "net_plugin/verbs/mr_cache.h"

#include <unistd.h>

#include <utility>

namespace rewire::net {
namespace {

constexpr rdma::Access kAll = {
    .local_write = true, .remote_write = true, .remote_read = true, .relaxed_ordering = true};

}  // namespace

absl::StatusOr<std::shared_ptr<rdma::MemoryRegion>> MrCache::Get(const void* data, size_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = at / page * page;
  const uintptr_t end = (at + (bytes == 0 ? 1 : bytes) + page - 1) / page * page;
  MutexLock lock(&mutex_);
  std::erase_if(entries_, [](const auto& entry) { return entry.second.region.expired(); });
  for (auto e = entries_.begin(); e != entries_.end() && e->first <= begin; ++e) {
    if (e->second.end < end) continue;
    if (auto region = e->second.region.lock()) return region;
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): rounded down to its page.
  auto made = device_->Register(reinterpret_cast<void*>(begin), end - begin, kAll);
  if (!made.ok()) return made.status();
  std::shared_ptr<rdma::MemoryRegion> region = *std::move(made);
  entries_.emplace(begin, Entry{end, region});
  return region;
}

absl::StatusOr<std::shared_ptr<rdma::MemoryRegion>> MrCache::GetDmabuf(const void* data,
                                                                       size_t bytes,
                                                                       uint64_t offset, int fd) {
  auto made = device_->RegisterDmabuf(fd, offset, bytes, reinterpret_cast<uintptr_t>(data), kAll);
  if (!made.ok()) return made.status();
  return std::shared_ptr<rdma::MemoryRegion>(*std::move(made));
}

}  // namespace rewire::net
