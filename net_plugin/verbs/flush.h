// Makes what a NIC has written to a GPU's memory visible there: a READ of it by the same NIC, over
// a queue pair that is joined with itself, cannot overtake its writes. Of the progress thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "net_plugin/core/comm.h"
#include "net_plugin/verbs/connection.h"
#include "net_plugin/verbs/rail.h"
#include "net_plugin/verbs/registration.h"

namespace rewire::net {

class Flush {
 public:
  // One request of NCCL's for a flush.
  struct Flushing : Request {
    bool busy = false;
    uint64_t waits = 0;  // for these NICs, a bit for each
  };

  explicit Flush(Comm* comm);

  // Null: nothing has to be flushed, or not now. A NIC that fails is not waited for: it can no
  // longer be asked, and what it had written left it before the completions that were seen of it.
  absl::StatusOr<Request*> Begin(const Nics& nics, const void* data, const Registration& memory,
                                 const ConnectionOptions& options);
  absl::StatusOr<bool> Test(Flushing* flushing);

 private:
  struct Loop {
    Rail rail;
    std::shared_ptr<rdma::MemoryRegion> region;  // of into_
  };

  absl::StatusOr<Loop> Make(const std::shared_ptr<Nic>& nic, const RailOptions& options);
  void GiveUp(size_t nic);

  std::vector<Loop> loops_;  // by NIC; made at the first use
  uint64_t into_ = 0;        // what is read lands here
  std::array<Flushing, kMaxRequests> flushings_;
};

}  // namespace rewire::net
