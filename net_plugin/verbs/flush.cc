#include "net_plugin/verbs/flush.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/wire_format.h"
#include "net_plugin/verbs/background.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"

namespace rewire::net {

Flush::Flush(Comm* comm) {
  for (Flushing& f : flushings_) {
    f.comm = comm;
    f.flush = true;
  }
}

absl::StatusOr<Flush::Loop> Flush::Make(const std::shared_ptr<Nic>& nic,
                                        const RailOptions& options) {
  RailOptions one = options;
  one.queue_pairs = 1;
  REWIRE_ASSIGN_OR_RETURN(auto region, nic->memory().Get(&into_, sizeof into_));
  Rail rail(nic);
  REWIRE_ASSIGN_OR_RETURN(const Offer offer, rail.Prepare(one, nullptr, Random()));
  REWIRE_RETURN_IF_ERROR(rail.Join(one, offer, nullptr));
  return Loop{std::move(rail), std::move(region)};
}

void Flush::GiveUp(size_t nic) {
  REWIRE_WARN("net plugin: flush of device memory: %s failed, and flushes do not wait for it",
              loops_[nic].rail.nic().name().c_str());
  RunInBackground([old = std::make_shared<Rail>(loops_[nic].rail.Take())] { old->Drop(); });
  for (Flushing& f : flushings_) f.waits &= ~(uint64_t{1} << nic);
}

absl::StatusOr<Request*> Flush::Begin(const Nics& nics, const void* data,
                                      const Registration& memory,
                                      const ConnectionOptions& options) {
  while (loops_.size() < nics.all.size()) loops_.push_back({Rail(nics.all[loops_.size()]), {}});
  const auto free =
      std::find_if(flushings_.begin(), flushings_.end(), [](const Flushing& f) { return !f.busy; });
  if (free == flushings_.end()) return nullptr;
  free->waits = 0;
  for (size_t i = 0; i < loops_.size(); ++i) {
    // A NIC without a registration has not written to the memory.
    const rdma::MemoryRegion* const known = memory.Find(i);
    if (known == nullptr) continue;
    if (!loops_[i].rail.made()) {
      absl::StatusOr<Loop> made = Make(nics.all[i], options.rail);
      if (!made.ok() && nics.all[i]->HasLink()) return made.status();
      if (!made.ok()) continue;
      loops_[i] = *std::move(made);
    }
    const rdma::Segment segment{reinterpret_cast<uintptr_t>(&into_), 1, loops_[i].region->lkey()};
    rdma::SendWork work;
    work.id = static_cast<uint64_t>(free - flushings_.begin());
    work.operation = rdma::Operation::kRead;
    work.segments = {&segment, 1};
    work.remote_address = reinterpret_cast<uintptr_t>(data);
    work.rkey = known->rkey();
    if (loops_[i].rail.Write({&work, 1}, 1).status.ok()) {
      free->waits |= uint64_t{1} << i;
    } else {
      GiveUp(i);
    }
  }
  free->busy = free->waits != 0;
  return free->busy ? &*free : nullptr;
}

absl::StatusOr<bool> Flush::Test(Flushing* flushing) {
  std::array<RailEvent, Rail::kBatch> events;
  for (size_t i = 0; i < loops_.size(); ++i) {
    if (!loops_[i].rail.made()) continue;
    const absl::StatusOr<size_t> polled = loops_[i].rail.Poll(events);
    bool failed = !polled.ok();
    for (size_t k = 0; k < polled.value_or(0); ++k) {
      const RailEvent& e = events[k];
      if (e.kind == RailEvent::Kind::kWritten) {
        flushings_[e.id].waits &= ~(uint64_t{1} << i);
      } else if (WrongHere(e.status) || WrongThere(e.status)) {
        return absl::InternalError(absl::StrCat("flush of device memory with ",
                                                loops_[i].rail.nic().name(), ": ",
                                                std::string(rdma::Name(e.status))));
      } else {
        failed = true;
      }
    }
    if (failed) GiveUp(i);
  }
  if (flushing->waits != 0) return false;
  flushing->busy = false;
  return true;
}

}  // namespace rewire::net
