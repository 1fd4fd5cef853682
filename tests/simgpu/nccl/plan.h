// All requests of one group to one communicator: the work of one launched kernel. Collectives run
// one after another on the ring. Sends and receives run concurrently with them and with one
// another, in FIFO order per peer and direction. Built by the caller's thread, executed by the
// progress thread while the kernel waits.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/simgpu/nccl/connection.h"
#include "tests/simgpu/nccl/ring_run.h"

namespace simnccl {

// The connections of one communicator. Entries are made before the first plan that uses them is
// posted, and are valid until the progress thread has ended.
struct Connections {
  std::unique_ptr<Connection> ring_next;
  std::unique_ptr<Connection> ring_previous;
  std::vector<std::unique_ptr<Connection>> peer_send;  // index: rank
  std::vector<std::unique_ptr<Connection>> peer_recv;
};

class Plan {
 public:
  Plan(int rank, int nranks) : rank_(rank), nranks_(nranks) {}
  void Add(const CollectiveTask& task) { collectives_.push_back(task); }
  void Add(const PeerTask& task);

  // Messages to the own rank are copies: the n-th send pairs with the n-th receive. Returns an
  // error if they do not pair.
  ncclResult_t PairSelf();
  // Runs the part that needs no network; the kernel itself calls this function.
  void RunLocal();
  [[nodiscard]] bool NeedsNetwork() const;

  void Begin(Connections* connections);
  ncclResult_t Advance(bool* moved, bool* done);
  // Adds the connections whose messages are with the network.
  void AppendWaiting(std::vector<Connection*>* waiting);

 private:
  struct Flow {
    Connection* connection = nullptr;
    std::deque<PeerTask> tasks;                     // not yet staged, or announced to the network
    std::deque<std::pair<char*, size_t>> expected;  // receiving: targets of announced bytes
  };
  ncclResult_t AdvanceSend(Flow* flow, bool* moved);
  ncclResult_t AdvanceRecv(Flow* flow, bool* moved);

  const int rank_;
  const int nranks_;
  std::deque<CollectiveTask> collectives_;
  std::map<std::pair<bool, int>, Flow> flows_;  // key: (sending, peer)
  std::deque<PeerTask> self_sends_;
  std::deque<PeerTask> self_recvs_;
  Connections* connections_ = nullptr;
  std::optional<RingRun> ring_;
};

}  // namespace simnccl
