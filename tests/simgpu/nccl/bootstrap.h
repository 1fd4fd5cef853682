// Communication between the ranks of one communicator outside the data path: a TCP ring for
// all-gathers, and single messages between any two ranks. One management call at a time uses the
// ring; sending and receiving messages is thread-safe.
#pragma once

#include <netinet/in.h>

#include <span>
#include <vector>

#include "tests/simgpu/nccl/mailbox.h"
#include "tests/simgpu/nccl/root.h"

namespace simnccl {

class Bootstrap {
 public:
  // Connects through the roots: rank r registers with root r * ids / nranks.
  ncclResult_t InitFromRoots(std::span<const IdContent> ids, int rank, int nranks,
                             const Patience& patience);
  // Connects through the parent's mailboxes: `members` are the parent's ranks in the order of this
  // ring.
  ncclResult_t InitFromParent(Bootstrap* parent, uint64_t key, std::span<const int> members,
                              int rank, const Patience& patience);

  // `all` has one item of `bytes` bytes per rank. The caller has filled in this rank's item.
  ncclResult_t AllGather(void* all, size_t bytes, const Patience& patience);

  ncclResult_t Send(int peer, uint64_t tag, const void* data, size_t bytes,
                    const Patience& patience);
  ncclResult_t Recv(int peer, uint64_t tag, void* data, size_t bytes, const Patience& patience);

  [[nodiscard]] uint64_t key() const { return key_; }

 private:
  // Connects to the next rank's mailbox and takes the previous rank's connection from `inbox`.
  ncclResult_t JoinRing(const sockaddr_in& next, Mailbox* inbox, int previous,
                        const Patience& patience);
  ncclResult_t ShareAddresses(const Patience& patience);

  uint64_t key_ = 0;
  int rank_ = 0;
  int nranks_ = 0;
  Mailbox mailbox_;
  rewire::UniqueFd next_;
  rewire::UniqueFd previous_;
  std::vector<sockaddr_in> addresses_;
};

}  // namespace simnccl
