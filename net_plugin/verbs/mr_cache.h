// The memory regions registered with one NIC. NCCL registers the same buffers for every connection
// and registration is slow, so users of the same range of pages share one region. Thread-safe: the
// service thread registers while the progress thread uses existing regions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/rdma/driver.h"

namespace rewire::net {

class MrCache {
 public:
  explicit MrCache(rdma::Device* device) : device_(device) {}

  // Returns a region of pages that hold this range; the last release deregisters the region.
  absl::StatusOr<std::shared_ptr<rdma::MemoryRegion>> Get(const void* data, size_t bytes);
  // Registers a range of a dmabuf descriptor; such regions are not shared.
  absl::StatusOr<std::shared_ptr<rdma::MemoryRegion>> GetDmabuf(const void* data, size_t bytes,
                                                                uint64_t offset, int fd);

 private:
  struct Entry {
    uintptr_t end = 0;
    std::weak_ptr<rdma::MemoryRegion> region;
  };

  rdma::Device* const device_;
  Mutex mutex_;
  std::multimap<uintptr_t, Entry> entries_ REWIRE_GUARDED_BY(mutex_);  // by beginning
};

}  // namespace rewire::net
