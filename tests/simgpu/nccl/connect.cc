#include "tests/simgpu/nccl/connect.h"

#include <cstring>
#include <memory>
#include <vector>

#include "tests/simgpu/nccl/error.h"

namespace simnccl {
namespace {

// Tags of the handle messages; a tag is used once per communicator and pair of ranks.
constexpr uint64_t kRingTag = 1;
constexpr uint64_t kPeerTag = 2;
// Besides the staging of the Simple protocol, NCCL gives each ring connection the staging of LL
// (512 KiB) and of LL128 (4.69 MiB). See README.md.
constexpr size_t kOtherProtocolsBytes = (512 << 10) + (4800 << 10);

// One direction to one peer during its construction.
struct Setup {
  bool sending;
  int peer;
  std::unique_ptr<Connection>* target;
  size_t bytes;        // bytes of staging
  size_t extra_bytes;  // bytes that other protocols would use
  uint64_t tag;
  char handle[kNetHandleBytes] = {};
  void* listen = nullptr;
  void* comm = nullptr;
};

ncclResult_t Finish(ncclComm* comm, Setup* s) {
  Net* net = comm->net.get();
  char* staging = nullptr;
  void* mh = nullptr;
  ncclResult_t result = AllocateFor(comm, s->bytes + s->extra_bytes, &staging);
  if (result == ncclSuccess) {
    // Touches the memory as NCCL does, so that no operation is the first to use it.
    std::memset(staging, 0, s->bytes + s->extra_bytes);
    result = net->RegMr(s->comm, staging, s->bytes, comm->net_ptr_type, &mh);
  }
  if (result != ncclSuccess) {
    s->sending ? net->CloseSend(s->comm) : net->CloseRecv(s->comm);
    return result;
  }
  *s->target = std::make_unique<Connection>(net, s->comm, s->sending, staging, s->bytes, mh);
  return ncclSuccess;
}

// Runs on the service thread and tries once. Returns InProgress while the peer is not there.
ncclResult_t TryOnce(ncclComm* comm, Setup* s) {
  Net* net = comm->net.get();
  if (s->sending) {
    SIMNCCL_TRY(net->Connect(comm->net_context, comm->net_device, s->handle, &s->comm));
  } else {
    SIMNCCL_TRY(net->Accept(s->listen, &s->comm));
    if (s->comm != nullptr) {
      // A listening object serves a single accept.
      void* listen = std::exchange(s->listen, nullptr);
      SIMNCCL_TRY(net->CloseListen(listen));
    }
  }
  return s->comm == nullptr ? ncclInProgress : Finish(comm, s);
}

ncclResult_t ConnectAll(ncclComm* comm, std::vector<Setup>* setups) {
  const Patience patience = PatienceOf(comm);
  Net* net = comm->net.get();
  ncclResult_t result = comm->service->Call(
      [&] {
        for (Setup& s : *setups) {
          if (s.sending) continue;
          SIMNCCL_TRY(net->Listen(comm->net_context, comm->net_device, s.handle, &s.listen));
        }
        return ncclSuccess;
      },
      patience);
  for (Setup& s : *setups) {
    if (result != ncclSuccess || s.sending) continue;
    result = comm->bootstrap.Send(s.peer, s.tag, s.handle, sizeof(s.handle), patience);
  }
  for (Setup& s : *setups) {
    if (result != ncclSuccess || !s.sending) continue;
    result = comm->bootstrap.Recv(s.peer, s.tag, s.handle, sizeof(s.handle), patience);
  }
  if (result == ncclSuccess) {
    result = comm->service->Call(
        [&] {
          ContextScope scope(comm->driver, comm->context);
          bool all = true;
          for (Setup& s : *setups) {
            if (*s.target != nullptr) continue;
            const ncclResult_t one = TryOnce(comm, &s);
            if (one == ncclInProgress)
              all = false;
            else
              SIMNCCL_TRY(one);
          }
          return all ? ncclSuccess : ncclInProgress;
        },
        patience);
  }
  if (result == ncclSuccess) return ncclSuccess;
  // The same thread abandons unfinished connections. Afterwards the communicator can only be
  // aborted.
  const Patience cleanup{rewire::Now() + rewire::seconds(60), nullptr};
  comm->service->Call(
      [&] {
        for (Setup& s : *setups) {
          if (s.listen != nullptr) net->CloseListen(std::exchange(s.listen, nullptr));
          if (s.sending && *s.target == nullptr) net->AbandonConnect(s.handle);
        }
        return ncclSuccess;
      },
      cleanup);
  return result;
}

std::unique_ptr<Connection>* Target(ncclComm* comm, bool sending, int peer) {
  auto& all = sending ? comm->connections.peer_send : comm->connections.peer_recv;
  return &all[peer];
}

}  // namespace

bool RingConnected(const ncclComm* comm) {
  return comm->nranks == 1 ||
         (comm->connections.ring_next != nullptr && comm->connections.ring_previous != nullptr);
}

ncclResult_t ConnectRing(ncclComm* comm) {
  if (RingConnected(comm)) return ncclSuccess;
  const int next = (comm->rank + 1) % comm->nranks;
  const int previous = (comm->rank + comm->nranks - 1) % comm->nranks;
  std::vector<Setup> setups;
  setups.push_back({false, previous, &comm->connections.ring_previous, comm->buffer_bytes,
                    kOtherProtocolsBytes, kRingTag});
  setups.push_back({true, next, &comm->connections.ring_next, comm->buffer_bytes,
                    kOtherProtocolsBytes, kRingTag});
  SIMNCCL_TRY(ConnectAll(comm, &setups));
  comm->progress->Start(&comm->connections);
  return ncclSuccess;
}

bool PeersConnected(const ncclComm* comm, const PeerSet& peers) {
  for (const auto& [sending, peer] : peers) {
    const auto& all = sending ? comm->connections.peer_send : comm->connections.peer_recv;
    if (peer != comm->rank && all[peer] == nullptr) return false;
  }
  return true;
}

ncclResult_t ConnectPeers(ncclComm* comm, const PeerSet& peers) {
  if (PeersConnected(comm, peers)) return ncclSuccess;
  // A peer gets a quarter of the ring's staging, because there may be many peers.
  const size_t bytes = std::max<size_t>(comm->buffer_bytes / 4 / 4096 * 4096, 4096);
  std::vector<Setup> setups;
  for (const auto& [sending, peer] : peers) {
    std::unique_ptr<Connection>* target = Target(comm, sending, peer);
    if (peer == comm->rank || *target != nullptr) continue;
    setups.push_back({sending, peer, target, bytes, 0, kPeerTag});
  }
  SIMNCCL_TRY(ConnectAll(comm, &setups));
  comm->progress->Start(&comm->connections);
  return ncclSuccess;
}

ncclResult_t AllocateFor(ncclComm* comm, size_t bytes, char** memory) {
  uint64_t pointer = 0;
  SIMNCCL_CU(comm->driver->MemAlloc(&pointer, bytes));
  comm->device_memory.push_back(pointer);
  *memory = reinterpret_cast<char*>(pointer);
  return ncclSuccess;
}

ncclResult_t CloseConnections(ncclComm* comm) {
  const Patience patience{rewire::Now() + rewire::seconds(60), nullptr};
  return comm->service->Call(
      [&] {
        ContextScope scope(comm->driver, comm->context);
        Net* net = comm->net.get();
        const auto close = [&](std::unique_ptr<Connection>* c) {
          if (*c == nullptr) return;
          net->DeregMr((*c)->comm(), (*c)->mh());
          (*c)->sending() ? net->CloseSend((*c)->comm()) : net->CloseRecv((*c)->comm());
          c->reset();
        };
        close(&comm->connections.ring_next);
        close(&comm->connections.ring_previous);
        for (auto& c : comm->connections.peer_send) close(&c);
        for (auto& c : comm->connections.peer_recv) close(&c);
        for (const uint64_t pointer : comm->device_memory) comm->driver->MemFree(pointer);
        comm->device_memory.clear();
        return ncclSuccess;
      },
      patience);
}

}  // namespace simnccl
