// One end of a connection in a test: a device of any driver, its queues and some memory. An
// impossible request fails the test. Owned by the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/rdma/driver.h"

namespace rewire::rdma {

struct End {
  static constexpr size_t kBytes = 256 << 10;
  static constexpr uint32_t kMaxSend = 32;
  static constexpr uint32_t kMaxReceive = 32;
  static constexpr uint32_t kMaxInline = 64;

  // Opens the device, creates `completions` with room for `room` entries, and registers the memory
  // with all rights.
  void Open(Driver* driver, const std::string& name, uint32_t room = 256);
  // Makes a queue pair in RESET that replaces the previous one.
  void Make(uint32_t max_send = kMaxSend);
  void ToInit(Access access = {true, true, true});
  void ToReadyToReceive(const End& peer, uint32_t peer_psn);
  void ToReadyToSend(const SendAttributes& attributes);

  [[nodiscard]] uint64_t address(size_t offset = 0) const {
    return reinterpret_cast<uintptr_t>(memory.data()) + offset;
  }
  [[nodiscard]] Segment segment(size_t offset, uint32_t bytes) const {
    return {address(offset), bytes, region->lkey()};
  }
  // Returns a write to the peer's memory.
  [[nodiscard]] static SendWork WriteTo(const End& peer, size_t offset, const Segment& from,
                                        uint64_t id);

  void Post(const SendWork& work);
  void PostEmptyReceive(uint64_t id);
  // Polls until `count` completions have arrived, or fails the test at the deadline.
  std::vector<Completion> Await(size_t count, Duration within = seconds(20));

  // Returns a byte that depends on its position and the seed.
  [[nodiscard]] static char Pattern(size_t position, uint32_t seed);
  void Fill(size_t offset, size_t bytes, uint32_t seed);
  [[nodiscard]] ::testing::AssertionResult Holds(size_t offset, size_t bytes, uint32_t seed) const;

  std::shared_ptr<Device> device;
  std::shared_ptr<CompletionQueue> completions;
  std::unique_ptr<QueuePair> queue_pair;
  std::vector<char> memory;
  std::unique_ptr<MemoryRegion> region;
  PortInfo port;
  GidEntry gid;
};

// Takes both ends from RESET to RTS; the packet numbers are `psn` and a distant one.
void Connect(End* left, End* right, uint32_t psn, SendAttributes attributes);

}  // namespace rewire::rdma
