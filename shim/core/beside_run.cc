#include "shim/core/beside_run.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"
#include "shim/core/ranks_here.h"

namespace rewire::shim {

namespace {

constexpr milliseconds kPoll(1);
// A longer pause between two polls is the host's: this thread has low priority.
constexpr milliseconds kLongestPoll(10);
// A build has a deadline, and NCCL connects a rank to one peer after the other. Above this number
// of peers of one rank, the program's own first operation connects.
constexpr uint32_t kMostPeers = 64;

// Returns "first operation on a new generation of communicator ID: what".
std::string FirstOperation(const CommunicatorId& id, const std::string& what) {
  return absl::StrCat("first operation on a new generation of communicator ", Name(id), ": ", what);
}

// Returns the operations that the program has issued so far, with sends and receives.
uint64_t OperationsOf(const VirtualCommunicator& comm) {
  uint64_t all = comm.issued.load(std::memory_order_relaxed);
  const PeerCounters* const peers = comm.peers.load(std::memory_order_acquire);
  const int count = peers == nullptr ? 0 : comm.peer_count.load(std::memory_order_acquire);
  for (int peer = 0; peer < count; ++peer) {
    all += peers[peer].sent.load(std::memory_order_relaxed) +
           peers[peer].received.load(std::memory_order_relaxed);
  }
  return all;
}

// The parts of a rank's memory: the table, one byte from each rank, one byte to send.
struct Parts {
  Parts(void* scratch, const SentPairs& pairs)
      : table(static_cast<uint8_t*>(scratch)),
        received(table + pairs.bytes().size()),
        sent(received + pairs.ranks()) {}
  uint8_t* const table;
  uint8_t* const received;
  uint8_t* const sent;
};

// Sends to and receives from all ranks with which this rank has a pair, in one group.
ncclResult_t SendOverPairs(const NcclCalls& nccl, const SentPairs& pairs, uint32_t rank,
                           const Parts& at, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = nccl.GroupStart();
  if (result != ncclSuccess) return result;
  const auto issue = [&result](ncclResult_t one) {
    if (result == ncclSuccess && one != ncclInProgress) result = one;
  };
  for (uint32_t peer = 0; peer < pairs.ranks() && result == ncclSuccess; ++peer) {
    if (pairs.Has(rank, peer))
      issue(nccl.Send(at.sent, 1, ncclInt8, static_cast<int>(peer), comm, stream));
    if (pairs.Has(peer, rank))
      issue(nccl.Recv(at.received + peer, 1, ncclInt8, static_cast<int>(peer), comm, stream));
  }
  const ncclResult_t ended = nccl.GroupEnd();
  return result == ncclSuccess ? ended : result;
}

}  // namespace

size_t BesideRun::BytesFor(uint32_t ranks) {
  const SentPairs pairs(ranks);
  return std::max(sizeof(float), pairs.bytes().size() + pairs.ranks() + 1);
}

absl::Status BesideRun::Run(BuildTask* task, const Chains& chains, Ranks links) {
  std::vector<cudaStream_t> streams;
  absl::Status status;
  for (size_t i = 0; i < links.size() && status.ok(); ++i) {
    status = device_->Enter(links[i]->context);
    if (!status.ok()) break;
    absl::StatusOr<cudaStream_t> stream = device_->MakeStream();
    status = stream.status();
    if (status.ok()) streams.push_back(*stream);
  }
  // A thread left inside NCCL uses only copies.
  Device* const device = device_;
  const std::vector<DeviceContext> contexts = ContextsOf(links);
  if (status.ok()) status = RunOn(task, chains, links, streams);
  for (size_t i = 0; i < streams.size(); ++i) {
    if (!status.ok() && !task->Left() && !links[i]->blocking) {
      links[i]->launching = streams[i];
    } else if (device->Enter(contexts[i]).ok()) {
      device->DestroyStream(streams[i]);
    }
  }
  if (!status.ok()) return status;
  for (Link* link : links) link->warmed = true;
  ++counters_->warmed_beside;
  return absl::OkStatus();
}

absl::Status BesideRun::RunOn(BuildTask* task, const Chains& chains, Ranks links, Streams streams) {
  const absl::StatusOr<SentPairs> pairs = AddTables(task, chains, links, streams);
  REWIRE_RETURN_IF_ERROR(pairs.status());
  const bool sends = !pairs->empty() && pairs->MostOfARank() <= kMostPeers;
  return !sends ? absl::OkStatus() : Send(task, chains, links, streams, *pairs);
}

absl::StatusOr<SentPairs> BesideRun::AddTables(BuildTask* task, const Chains& chains, Ranks links,
                                               Streams streams) {
  const auto failed = [&](const char* what) {
    return absl::InternalError(FirstOperation(chains.front()->id(), what));
  };
  // A copy may take long, as a call of NCCL. A thread left inside uses only copies and this memory.
  const auto tables =
      std::make_shared<std::vector<SentPairs>>(links.size(), SentPairs(links.front()->ranks));
  for (size_t i = 0; i < links.size(); ++i) {
    const User user(chains[i]->comm);
    (*tables)[i].AddSentBy(*chains[i]->comm, links[i]->rank);
  }
  const NcclCalls nccl = *nccl_;
  Device* const device = device_;
  const std::vector<DeviceContext> contexts = ContextsOf(links);
  const std::vector<void*> scratch = ScratchOf(links);
  const std::vector<Generation*> generations = GenerationsOf(links);
  const std::vector<cudaStream_t> on(streams.begin(), streams.end());
  const size_t bytes = tables->front().bytes().size();
  ncclResult_t result = ncclSuccess;
  REWIRE_RETURN_IF_ERROR(task->InNccl(links, &result, [=] {
    for (size_t i = 0; i < scratch.size(); ++i) {
      const bool written =
          device->Enter(contexts[i]).ok() && device->Write(scratch[i], (*tables)[i].bytes(), on[i]);
      if (!written) return ncclUnhandledCudaError;
    }
    return ncclSuccess;
  }));
  if (result != ncclSuccess) return failed("no copy to the device");
  REWIRE_RETURN_IF_ERROR(Complete(task, chains, links, streams, [=](size_t i) {
    return nccl.AllReduce(scratch[i], scratch[i], bytes, ncclUint8, ncclSum, generations[i]->Real(),
                          on[i]);
  }));
  REWIRE_RETURN_IF_ERROR(task->InNccl(links, &result, [=] {
    const bool read =
        device->Enter(contexts[0]).ok() && device->Read(scratch[0], tables->front().bytes(), on[0]);
    return read ? ncclSuccess : ncclUnhandledCudaError;
  }));
  if (result != ncclSuccess) return failed("no copy from the device");
  return tables->front();
}

absl::Status BesideRun::Send(BuildTask* task, const Chains& chains, Ranks links, Streams streams,
                             const SentPairs& pairs) {
  const NcclCalls nccl = *nccl_;
  const std::vector<void*> scratch = ScratchOf(links);
  const std::vector<Generation*> generations = GenerationsOf(links);
  const std::vector<cudaStream_t> on(streams.begin(), streams.end());
  const auto all = std::make_shared<const SentPairs>(pairs);
  std::vector<uint32_t> ranks;
  for (const Link* link : links) ranks.push_back(link->rank);
  return Complete(task, chains, links, streams, [=](size_t i) {
    return SendOverPairs(nccl, *all, ranks[i], Parts(scratch[i], *all), generations[i]->Real(),
                         on[i]);
  });
}

absl::Status BesideRun::Complete(BuildTask* task, const Chains& chains, Ranks links,
                                 Streams streams, const Call& call) {
  const CommunicatorId id = chains.front()->id();
  const NcclCalls nccl = *nccl_;
  Device* const device = device_;
  const std::vector<DeviceContext> contexts = ContextsOf(links);
  ncclResult_t result = ncclSuccess;
  REWIRE_RETURN_IF_ERROR(
      task->InNccl(links, &result, [&] { return ForEachRank(nccl, device, contexts, call); }));
  if (result != ncclSuccess && result != ncclInProgress) {
    return absl::InternalError(FirstOperation(id, nccl.Describe(result)));
  }
  for (size_t i = 0; i < links.size(); ++i) {
    if (!links[i]->blocking)
      REWIRE_RETURN_IF_ERROR(Settle(nccl, task, links[i]->generation->Real()));
    REWIRE_RETURN_IF_ERROR(device_->Enter(contexts[i]));
    // The event is free until the generation is in use.
    if (!device_->Record(links[i]->end_of_previous, streams[i])) {
      return absl::InternalError(FirstOperation(id, "no event can be recorded after it"));
    }
  }
  return Await(task, chains, links);
}

absl::Status BesideRun::Await(BuildTask* task, const Chains& chains, Ranks links) {
  const CommunicatorId id = chains.front()->id();
  const auto count = [&] {
    uint64_t all = 0;
    for (const auto& chain : chains) {
      const User user(chain->comm);
      all += OperationsOf(*chain->comm);
    }
    return all;
  };
  uint64_t issued = count();
  // How long the program has stood still, as far as this thread could run. A thread that the host
  // holds back sees the program stand still for the same reason.
  Duration still{0};
  Time polled = Now();
  for (size_t i = 0; i < links.size();) {
    switch (device_->Query(links[i]->end_of_previous)) {
      case Device::EventState::kDone:
        ++i;
        continue;
      case Device::EventState::kFailed:
        return absl::InternalError(FirstOperation(id, "the device reported an error"));
      case Device::EventState::kPending:
        break;
    }
    const Time now = Now();
    still += std::min<Duration>(now - polled, kLongestPoll);
    polled = now;
    const uint64_t now_issued = count();
    if (std::exchange(issued, now_issued) != now_issued) still = Duration{0};
    // A joiner, or a member whose generations were aborted, has no operation that could be blocked.
    const bool may_block = issued != 0 && !IsLost(chains.front().get());
    if (const absl::Status stopped = task->Stopped(); !stopped.ok()) {
      // Another member was the first to give up. The member that mints the next build must know.
      if (may_block && still > stalled_ / 2) ++counters_->beside_refused;
      return stopped;
    }
    if (may_block && still > stalled_) {
      // The two operations may block each other on some device. An abort of the new generation,
      // which no member uses yet, lets the old one continue. The attempt is not repeated.
      ++counters_->beside_refused;
      return absl::AbortedError(FirstOperation(
          id, absl::StrCat("not complete while the program issued no operation for ",
                           stalled_.count(), " ms (later builds run it at an agreed operation)")));
    }
    std::this_thread::sleep_for(kPoll);
  }
  return absl::OkStatus();
}

}  // namespace rewire::shim
