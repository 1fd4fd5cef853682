// Makes what a NIC has written to a GPU's memory visible there: a READ of it by the same NIC, over
// a queue pair that is joined with itself, cannot overtake its writes. Of the progress thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "net_plugin/core/comm.h"
#include "net_plugin/verbs/rail.h"
#include "net_plugin/verbs/registration.h"

namespace rewire::net {

class Flush {
 public:
  // One request of NCCL's for a flush.
  struct Flushing : Request {
    bool busy = false;
    uint32_t left = 0;  // READs that have not answered
  };

  explicit Flush(Comm* comm);

  // Null: nothing has to be flushed, or not now.
  absl::StatusOr<Request*> Begin(const std::vector<std::shared_ptr<Nic>>& nics, const void* data,
                                 const Registration& memory, const RailOptions& options);
  absl::StatusOr<bool> Test(Flushing* flushing);

 private:
  absl::Status Make(const std::vector<std::shared_ptr<Nic>>& nics, const RailOptions& options);

  std::vector<Rail> loops_;  // by NIC; made at the first use
  uint64_t into_ = 0;        // what is read lands here
  std::vector<std::shared_ptr<rdma::MemoryRegion>> regions_;
  std::array<Flushing, kMaxRequests> flushings_;
};

}  // namespace rewire::net
