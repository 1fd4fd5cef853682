// The folder that the ranks and the controller of one storm share: unique ids from one rank to the
// others, and what the controller asks for. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/clock.h"

namespace rewire::bench {

// The controller's word, in the order of precedence.
enum class Word : int32_t {
  kChange,  // create and destroy communicators
  kKeep,    // go on with those that there are
  kEnd
};

class JobFolder {
 public:
  explicit JobFolder(std::string path) : path_(std::move(path)) {}

  // Every name is written once.
  void Put(const std::string& name, const ncclUniqueId& id) const;
  // Waits for another rank's Put(); false after the time.
  [[nodiscard]] bool Get(const std::string& name, Duration within, ncclUniqueId* id) const;
  [[nodiscard]] Word Read() const;

 private:
  const std::string path_;
};

}  // namespace rewire::bench
