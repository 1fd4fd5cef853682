// One run of tests/rdma_vm's `fault`, beside the traffic. For one thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace rewire::bench {

class Fault {
 public:
  // As on its command line: "rxe0 unplug".
  explicit Fault(std::string_view words);
  ~Fault();
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  // Does not wait.
  bool Running();
  // How it ended, when it no longer runs.
  [[nodiscard]] absl::Status Result() const;

 private:
  const std::string words_;
  pid_t pid_ = -1;  // -1: does not run
  int status_ = -1;
};

}  // namespace rewire::bench
