// A driver around another, for tests: knows the queue pairs that were made and what was posted to
// them, can give completion queues that are too small, cut chains, and leave out the fence. Of the
// test's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reconfig/rdma/driver.h"

namespace rewire::net {

struct Spied {
  std::map<uint32_t, rdma::QueuePair*> queue_pairs;  // that are in use, by number
  uint64_t errors = 0;                               // queue pairs that were moved to error
  std::map<std::string, uint64_t> bytes;             // that were posted, by device
  struct Posted {
    rdma::Operation operation;
    size_t bytes;
    bool signalled;
    bool operator==(const Posted&) const = default;
  };
  std::map<std::string, std::vector<Posted>> posted;  // sends, by device
  uint32_t completions = 0;  // of each completion queue; 0: as many as asked for
  // Of a chain only the first request is posted; this is called, and an error is told.
  std::function<void()> cut;
  // ToError does nothing, and what is dropped works on.
  bool unfenced = false;
  std::vector<std::unique_ptr<rdma::QueuePair>> dropped;
};

std::unique_ptr<rdma::Driver> Spy(std::unique_ptr<rdma::Driver> driver,
                                  std::shared_ptr<Spied> spied);

}  // namespace rewire::net
