#include "tests/unit/rdma_contract/end.h"

#include <sched.h>

#include <algorithm>
#include <array>

#include "reconfig/base/hash.h"
#include "reconfig/rdma/port.h"

namespace rewire::rdma {

void End::Open(Driver* driver, const std::string& name, uint32_t room) {
  auto opened = driver->Open(name);
  ASSERT_TRUE(opened.ok()) << opened.status();
  device = *std::move(opened);
  const auto queried = device->QueryPort(1);
  ASSERT_TRUE(queried.ok()) << queried.status();
  port = *queried;
  ASSERT_EQ(port.state, PortState::kActive) << name << ": port 1 is not active";
  const auto chosen = ChooseGid(port.gids, port.link_layer, {});
  ASSERT_TRUE(chosen.has_value()) << name << ": port 1 has no usable GID";
  gid = *chosen;
  auto made = device->CreateCompletionQueue(room);
  ASSERT_TRUE(made.ok()) << made.status();
  completions = *std::move(made);
  memory.assign(kBytes, 0);
  auto registered = device->Register(memory.data(), kBytes, {true, true, true, true});
  ASSERT_TRUE(registered.ok()) << registered.status();
  region = *std::move(registered);
}

void End::Make(uint32_t max_send) {
  QueuePairOptions options;
  options.send_completions = options.receive_completions = completions;
  options.max_send = max_send;
  options.max_receive = kMaxReceive;
  options.max_segments = 2;
  options.max_inline = kMaxInline;
  auto made = device->CreateQueuePair(options);
  ASSERT_TRUE(made.ok()) << made.status();
  queue_pair = *std::move(made);
}

void End::ToInit(Access access) {
  const absl::Status status = queue_pair->ToInit({1, 0, access});
  ASSERT_TRUE(status.ok()) << status;
}

void End::ToReadyToReceive(const End& peer, uint32_t peer_psn) {
  ReceiveAttributes attributes;
  attributes.mtu = std::min(port.active_mtu, peer.port.active_mtu);
  attributes.peer_number = peer.queue_pair->number();
  attributes.first_psn = peer_psn;
  attributes.peer_lid = peer.port.lid;
  if (port.link_layer == LinkLayer::kEthernet) {
    attributes.peer_gid = peer.gid.gid;
    attributes.gid_index = static_cast<uint8_t>(gid.index);
  }
  attributes.min_rnr_timer = 1;
  const absl::Status status = queue_pair->ToReadyToReceive(attributes);
  ASSERT_TRUE(status.ok()) << status;
}

void End::ToReadyToSend(const SendAttributes& attributes) {
  const absl::Status status = queue_pair->ToReadyToSend(attributes);
  ASSERT_TRUE(status.ok()) << status;
}

SendWork End::WriteTo(const End& peer, size_t offset, const Segment& from, uint64_t id) {
  SendWork work;
  work.id = id;
  if (from.bytes > 0) work.segments = {&from, 1};
  work.remote_address = peer.address(offset);
  work.rkey = peer.region->rkey();
  return work;
}

void End::Post(const SendWork& work) {
  const PostResult result = queue_pair->PostSend({&work, 1});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.posted, 1U);
}

void End::PostEmptyReceive(uint64_t id) {
  const ReceiveWork work{id};
  const PostResult result = queue_pair->PostReceive({&work, 1});
  EXPECT_TRUE(result.status.ok()) << result.status;
}

std::vector<Completion> End::Await(size_t count, Duration within) {
  const Time deadline = Now() + within;
  std::vector<Completion> all;
  // A poll of the fake moves its virtual time on. On a busy host a yield takes milliseconds.
  for (int idle = 1; all.size() < count && Now() < deadline;) {
    std::array<Completion, 8> batch;
    const auto polled = completions->Poll(batch);
    EXPECT_TRUE(polled.ok()) << polled.status();
    if (!polled.ok()) break;
    all.insert(all.end(), batch.begin(), batch.begin() + static_cast<ptrdiff_t>(*polled));
    if (*polled == 0 && ++idle % 16 == 0) ::sched_yield();
  }
  EXPECT_EQ(all.size(), count) << "completions before the deadline";
  all.resize(count);
  return all;
}

char End::Pattern(size_t position, uint32_t seed) {
  return static_cast<char>(MixWord(seed, position));
}

void End::Fill(size_t offset, size_t bytes, uint32_t seed) {
  for (size_t i = 0; i < bytes; ++i) memory[offset + i] = Pattern(i, seed);
}

::testing::AssertionResult End::Holds(size_t offset, size_t bytes, uint32_t seed) const {
  for (size_t i = 0; i < bytes; ++i) {
    if (memory[offset + i] != Pattern(i, seed)) {
      return ::testing::AssertionFailure() << "byte " << i << " of " << bytes << " is wrong";
    }
  }
  return ::testing::AssertionSuccess();
}

void Connect(End* left, End* right, uint32_t psn, SendAttributes attributes) {
  const uint32_t other = (psn ^ 0x800000) & 0xffffff;
  for (const auto& [end, peer, own, its] :
       {std::tuple(left, right, psn, other), std::tuple(right, left, other, psn)}) {
    ASSERT_NO_FATAL_FAILURE(end->ToInit());
    ASSERT_NO_FATAL_FAILURE(end->ToReadyToReceive(*peer, its));
    attributes.first_psn = own;
    ASSERT_NO_FATAL_FAILURE(end->ToReadyToSend(attributes));
  }
}

}  // namespace rewire::rdma
