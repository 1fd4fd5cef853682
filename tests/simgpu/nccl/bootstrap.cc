#include "tests/simgpu/nccl/bootstrap.h"

#include "tests/simgpu/nccl/error.h"

namespace simnccl {
namespace {

// Returns the root that serves a rank, and the number of ranks that the root serves.
int RootOf(int rank, int nranks, int nids) {
  return static_cast<int>(static_cast<int64_t>(rank) * nids / nranks);
}

int RanksOf(int root, int nranks, int nids) {
  int count = 0;
  for (int r = 0; r < nranks; ++r) count += RootOf(r, nranks, nids) == root ? 1 : 0;
  return count;
}

}  // namespace

ncclResult_t Bootstrap::InitFromRoots(std::span<const IdContent> ids, int rank, int nranks,
                                      const Patience& patience) {
  const int nids = static_cast<int>(ids.size());
  key_ = ids[0].key;
  rank_ = rank;
  nranks_ = nranks;
  SIMNCCL_TRY(mailbox_.Open());
  const int next = (rank + 1) % nranks;
  const int own_root = RootOf(rank, nranks, nids);
  const int next_root = RootOf(next, nranks, nids);

  Hello hello;
  hello.kind = HelloKind::kRegister;
  hello.key = ids[own_root].key;
  hello.from = rank;
  hello.ranks = RanksOf(own_root, nranks, nids);
  hello.address = mailbox_.address();
  rewire::UniqueFd fd;
  SIMNCCL_TRY(Call(ids[own_root].address, hello, patience, &fd));

  hello.kind = HelloKind::kLookup;
  hello.key = ids[next_root].key;
  hello.from = next;
  hello.ranks = RanksOf(next_root, nranks, nids);
  rewire::UniqueFd lookup;
  SIMNCCL_TRY(Call(ids[next_root].address, hello, patience, &lookup));
  RootAnswer answer{};
  SIMNCCL_TRY(RecvAll(lookup.get(), &answer, sizeof(answer), patience));
  if (answer.result != ncclSuccess) {
    return Fail(answer.result, "the root refused rank %d of %d: ranks disagree", rank, nranks);
  }
  SIMNCCL_TRY(JoinRing(answer.address, &mailbox_, (rank + nranks - 1) % nranks, patience));
  return ShareAddresses(patience);
}

ncclResult_t Bootstrap::InitFromParent(Bootstrap* parent, uint64_t key,
                                       std::span<const int> members, int rank,
                                       const Patience& patience) {
  key_ = key;
  rank_ = rank;
  nranks_ = static_cast<int>(members.size());
  SIMNCCL_TRY(mailbox_.Open());
  const int next = (rank + 1) % nranks_;
  const int previous = (rank + nranks_ - 1) % nranks_;
  SIMNCCL_TRY(JoinRing(parent->addresses_[members[next]], &parent->mailbox_, previous, patience));
  return ShareAddresses(patience);
}

ncclResult_t Bootstrap::JoinRing(const sockaddr_in& next, Mailbox* inbox, int previous,
                                 const Patience& patience) {
  Hello hello;
  hello.kind = HelloKind::kRing;
  hello.key = key_;
  hello.from = rank_;
  SIMNCCL_TRY(Call(next, hello, patience, &next_));
  Caller caller;
  SIMNCCL_TRY(inbox->Take(
      [&](const Hello& h) {
        return h.kind == HelloKind::kRing && h.key == key_ && h.from == previous;
      },
      patience, &caller));
  previous_ = std::move(caller.fd);
  return ncclSuccess;
}

ncclResult_t Bootstrap::ShareAddresses(const Patience& patience) {
  addresses_.assign(nranks_, sockaddr_in{});
  addresses_[rank_] = mailbox_.address();
  return AllGather(addresses_.data(), sizeof(sockaddr_in), patience);
}

ncclResult_t Bootstrap::AllGather(void* all, size_t bytes, const Patience& patience) {
  auto* items = static_cast<char*>(all);
  for (int step = 0; step < nranks_ - 1; ++step) {
    const int out = (rank_ - step + nranks_) % nranks_;
    const int in = (rank_ - step - 1 + 2 * nranks_) % nranks_;
    SIMNCCL_TRY(SendAll(next_.get(), items + out * bytes, bytes, patience));
    SIMNCCL_TRY(RecvAll(previous_.get(), items + in * bytes, bytes, patience));
  }
  return ncclSuccess;
}

ncclResult_t Bootstrap::Send(int peer, uint64_t tag, const void* data, size_t bytes,
                             const Patience& patience) {
  Hello hello;
  hello.kind = HelloKind::kMessage;
  hello.key = key_;
  hello.from = rank_;
  hello.tag = tag;
  hello.bytes = static_cast<uint32_t>(bytes);
  rewire::UniqueFd fd;
  SIMNCCL_TRY(Call(addresses_[peer], hello, patience, &fd));
  return SendAll(fd.get(), data, bytes, patience);
}

ncclResult_t Bootstrap::Recv(int peer, uint64_t tag, void* data, size_t bytes,
                             const Patience& patience) {
  Caller caller;
  SIMNCCL_TRY(mailbox_.Take(
      [&](const Hello& h) {
        return h.kind == HelloKind::kMessage && h.key == key_ && h.from == peer && h.tag == tag &&
               h.bytes == bytes;
      },
      patience, &caller));
  return RecvAll(caller.fd.get(), data, bytes, patience);
}

}  // namespace simnccl
