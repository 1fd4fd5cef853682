#include "tests/fakes/rdma/memory_table.h"

namespace rewire::rdma::fake {

Region& MemoryTable::Add(const Region& region, uint64_t random) {
  // Keys are far apart and not in order, so that a key that is off by one is invalid.
  const uint32_t lkey = (++added_ << 12 | static_cast<uint32_t>(random & 0xfff)) & ~kRemote;
  Region& added = regions_[lkey] = region;
  added.lkey = lkey;
  added.rkey = lkey | kRemote;
  return added;
}

char* MemoryTable::Find(uint32_t key, uint32_t domain, uint64_t address, uint64_t bytes,
                        Touch touch) const {
  const bool remote = touch == Touch::kRemoteRead || touch == Touch::kRemoteWrite;
  if (remote != ((key & kRemote) != 0)) return nullptr;
  const auto found = regions_.find(key & ~kRemote);
  if (found == regions_.end()) return nullptr;
  const Region& region = found->second;
  if (region.domain != domain) return nullptr;
  if (address < region.base || bytes > region.bytes ||
      address - region.base > region.bytes - bytes) {
    return nullptr;
  }
  const bool allowed = touch == Touch::kLocalRead    ? true
                       : touch == Touch::kLocalWrite ? region.access.local_write
                       : touch == Touch::kRemoteRead ? region.access.remote_read
                                                     : region.access.remote_write;
  return allowed ? region.host + (address - region.base) : nullptr;
}

}  // namespace rewire::rdma::fake
