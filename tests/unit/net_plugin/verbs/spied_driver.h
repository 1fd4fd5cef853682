// A driver around another driver, for tests. It records the queue pairs and their posted work. It
// can make completion queues too small, cut chains, and omit the fence. Owned by the test's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reconfig/rdma/driver.h"

namespace rewire::net {

struct Spied {
  std::map<uint32_t, rdma::QueuePair*> queue_pairs;  // in use; key: number
  uint64_t errors = 0;                               // queue pairs that were moved to error
  std::map<std::string, uint64_t> bytes;             // posted bytes; key: device
  struct Posted {
    rdma::Operation operation;
    size_t bytes;
    bool signalled;
    bool operator==(const Posted&) const = default;
  };
  std::map<std::string, std::vector<Posted>> posted;  // posted sends; key: device
  uint32_t completions = 0;  // size of each completion queue; 0: as requested
  // If set, only the first request of a chain is posted; then `cut` is called and an error
  // returned.
  std::function<void()> cut;
  // ToError does nothing, and dropped queue pairs continue to work.
  bool unfenced = false;
  std::vector<std::unique_ptr<rdma::QueuePair>> dropped;
};

std::unique_ptr<rdma::Driver> Spy(std::unique_ptr<rdma::Driver> driver,
                                  std::shared_ptr<Spied> spied);

}  // namespace rewire::net
