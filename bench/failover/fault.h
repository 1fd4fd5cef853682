// Runs tests/rdma_vm's `fault` in a child process, beside the traffic. The destructor kills the
// child. Thread-compatible.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace rewire::bench {

class Fault {
 public:
  // words: the command's arguments, such as "rxe0 unplug".
  explicit Fault(std::string_view words);
  ~Fault();
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  // Returns whether the command still runs; does not wait.
  bool Running();
  // Returns how the command ended; call after Running() has returned false.
  [[nodiscard]] absl::Status Result() const;

 private:
  const std::string words_;
  pid_t pid_ = -1;  // -1: not running
  int status_ = -1;
};

}  // namespace rewire::bench
