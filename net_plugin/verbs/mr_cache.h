// What is registered with one NIC, each range of pages once however many ask for it: NCCL registers
// the same buffers for every connection, and registering is slow. Any thread: the service thread
// registers while the progress thread uses what it has.
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

  // Of pages that hold this range. Deregistered when the last one lets go of it.
  absl::StatusOr<std::shared_ptr<rdma::MemoryRegion>> Get(const void* data, size_t bytes);
  // A range of a dmabuf descriptor; each its own.
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
