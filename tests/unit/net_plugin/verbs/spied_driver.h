// A driver around another, for tests: knows the queue pairs that were made, can give completion
// queues that are too small, and can leave out the fence. Of the test's thread.
#pragma once

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
  std::map<std::string, uint64_t> requests;          // the same
  uint32_t completions = 0;  // of each completion queue; 0: as many as asked for
  // ToError does nothing, and what is dropped works on.
  bool unfenced = false;
  std::vector<std::unique_ptr<rdma::QueuePair>> dropped;
};

std::unique_ptr<rdma::Driver> Spy(std::unique_ptr<rdma::Driver> driver,
                                  std::shared_ptr<Spied> spied);

}  // namespace rewire::net
