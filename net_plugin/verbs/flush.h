// Makes a NIC's writes to a GPU's memory visible on the GPU: a READ of the memory by the same NIC,
// on a queue pair connected to itself, cannot overtake the writes. Owned by NCCL's progress thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "net_plugin/transport/comm.h"
#include "net_plugin/verbs/connection_options.h"
#include "net_plugin/verbs/rail.h"
#include "net_plugin/verbs/registration.h"

namespace rewire::net {

class Flush {
 public:
  // One flush request of NCCL's.
  struct Flushing : Request {
    bool busy = false;
    uint64_t waits = 0;  // mask of the NICs that it waits for
  };

  explicit Flush(Comm* comm);

  // Returns null if no flush is needed or possible now. A failed NIC is not waited for: the NIC
  // cannot be asked any more, and its data had left it before the completions that were seen.
  absl::StatusOr<Request*> Begin(const Nics& nics, const void* data, const Registration& memory,
                                 const ConnectionOptions& options);
  absl::StatusOr<bool> Test(Flushing* flushing);

 private:
  struct Loop {
    Rail rail;
    std::shared_ptr<rdma::MemoryRegion> region;  // covers into_
  };

  absl::StatusOr<Loop> Make(const std::shared_ptr<Nic>& nic, const RailOptions& options);
  void GiveUp(size_t nic);

  std::vector<Loop> loops_;  // by NIC; created at the first use
  uint64_t into_ = 0;        // target of the READs
  std::array<Flushing, kMaxRequests> flushings_;
};

}  // namespace rewire::net
