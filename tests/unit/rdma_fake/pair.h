// Two ends on two devices of a fabric, for the tests of the fake. Owned by the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "tests/fakes/rdma/fabric.h"
#include "tests/unit/rdma_contract/end.h"

namespace rewire::rdma::fake {

class Pair {
 public:
  static constexpr uint32_t kPsn = 0xfffff0;  // wraps soon

  explicit Pair(const FabricOptions& options = {}, uint32_t room = 256) : fabric(options) {
    fabric.AddDevice({"left"});
    fabric.AddDevice({"right"});
    driver = fabric.MakeDriver({"left", "right"});
    left.Open(driver.get(), "left", room);
    right.Open(driver.get(), "right", room);
    left.Make();
    right.Make();
  }
  // Timeout 8 is 1 ms.
  void Connect(uint8_t retries = 7, uint8_t rnr_retries = 7, uint8_t timeout = 8) {
    rdma::Connect(&left, &right, kPsn, {0, timeout, retries, rnr_retries, 1});
  }
  // Returns a write with immediate from left to right.
  [[nodiscard]] SendWork Immediate(const Segment& from, uint64_t id, size_t offset = 0) const {
    SendWork work = End::WriteTo(right, offset, from, id);
    work.operation = Operation::kWriteWithImmediate;
    work.immediate = static_cast<uint32_t>(id);
    return work;
  }
  [[nodiscard]] static QueuePairState StateOf(End& end) { return *end.queue_pair->QueryState(); }

  Fabric fabric;
  std::unique_ptr<Driver> driver;
  End left;
  End right;
};

}  // namespace rewire::rdma::fake
