// The folder that the ranks and the controller of one storm share: unique ids from one rank to the
// others, and the controller's requests. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/clock.h"

namespace rewire::bench {

// The controller's request, in the order of precedence.
enum class Word : int32_t {
  kChange,  // create and destroy communicators
  kKeep,    // continue with the existing communicators
  kEnd
};

class JobFolder {
 public:
  explicit JobFolder(std::string path) : path_(std::move(path)) {}

  // Every name is written once.
  void Put(const std::string& name, const ncclUniqueId& id) const;
  // Waits for another rank's Put(); false after the timeout.
  [[nodiscard]] bool Get(const std::string& name, Duration within, ncclUniqueId* id) const;
  [[nodiscard]] Word Read() const;

 private:
  const std::string path_;
};

}  // namespace rewire::bench
