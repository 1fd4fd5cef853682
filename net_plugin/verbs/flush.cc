#include "net_plugin/verbs/flush.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/random.h"
#include "reconfig/base/status_macros.h"

namespace rewire::net {

Flush::Flush(Comm* comm) {
  for (Flushing& f : flushings_) {
    f.comm = comm;
    f.flush = true;
  }
}

absl::Status Flush::Make(const std::vector<std::shared_ptr<Nic>>& nics,
                         const RailOptions& options) {
  RailOptions one = options;
  one.queue_pairs = 1;
  for (const std::shared_ptr<Nic>& nic : nics) {
    REWIRE_ASSIGN_OR_RETURN(auto region, nic->memory().Get(&into_, sizeof into_));
    Rail loop(nic);
    REWIRE_ASSIGN_OR_RETURN(const Offer offer, loop.Prepare(one, nullptr, Random()));
    REWIRE_RETURN_IF_ERROR(loop.Join(one, offer, nullptr));
    regions_.push_back(std::move(region));
    loops_.push_back(std::move(loop));
  }
  return absl::OkStatus();
}

absl::StatusOr<Request*> Flush::Begin(const std::vector<std::shared_ptr<Nic>>& nics,
                                      const void* data, const Registration& memory,
                                      const RailOptions& options) {
  if (loops_.empty()) {
    if (absl::Status status = Make(nics, options); !status.ok()) {
      loops_.clear();
      regions_.clear();
      return status;
    }
  }
  const auto free =
      std::find_if(flushings_.begin(), flushings_.end(), [](const Flushing& f) { return !f.busy; });
  if (free == flushings_.end()) return nullptr;
  free->left = 0;
  for (size_t i = 0; i < loops_.size(); ++i) {
    const rdma::Segment segment{reinterpret_cast<uintptr_t>(&into_), 1, regions_[i]->lkey()};
    rdma::SendWork work;
    work.id = static_cast<uint64_t>(free - flushings_.begin());
    work.operation = rdma::Operation::kRead;
    work.segments = {&segment, 1};
    work.remote_address = reinterpret_cast<uintptr_t>(data);
    work.rkey = memory.regions[i]->rkey();
    REWIRE_RETURN_IF_ERROR(loops_[i].Write(work, 1));
    ++free->left;
  }
  free->busy = true;
  return &*free;
}

absl::StatusOr<bool> Flush::Test(Flushing* flushing) {
  std::array<RailEvent, Rail::kBatch> events;
  for (Rail& loop : loops_) {
    REWIRE_ASSIGN_OR_RETURN(const size_t polled, loop.Poll(events));
    for (size_t i = 0; i < polled; ++i) {
      if (events[i].kind == RailEvent::Kind::kWritten) {
        --flushings_[events[i].id].left;
        continue;
      }
      return absl::UnavailableError(absl::StrCat("flushing a GPU's memory with ", loop.nic().name(),
                                                 ": ", std::string(rdma::Name(events[i].status))));
    }
  }
  if (flushing->left > 0) return false;
  flushing->busy = false;
  return true;
}

}  // namespace rewire::net
