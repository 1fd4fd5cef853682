// The names of the group communicators that the program has asked unique ids for, their axes, and
// how often each was made in the present world. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

class GroupCommunicators {
 public:
  // The making of one communicator. `key` is the same on all members of the group, and names the
  // id among them (Names).
  struct Making {
    std::string key;
    uint32_t number = 0;  // in this world, from 1
  };

  // The members have changed, or this member has entered: the numbers begin anew. epoch: of the
  // change, the same on all members. A planned swap is no such change.
  void EnterWorld(Epoch epoch);
  // Returns the next making. Fails if the name had other axes before. The number counts only after
  // Made(), so that a failed attempt can be repeated.
  absl::StatusOr<Making> Next(const std::string& name, const std::string& axes) const;
  void Made(const std::string& name, const std::string& axes, uint32_t number,
            const UniqueIdBytes& id);
  // Adds the name and the number to the report of a communicator that was made from such an id.
  void Describe(CommunicatorCreated* created) const;
  // Returns the axes of a name; empty: the name is unknown.
  [[nodiscard]] std::string AxesOf(const std::string& name) const;

 private:
  struct Group {
    std::string axes;
    uint32_t made = 0;  // in this world
  };

  mutable Mutex mutex_;
  Epoch epoch_ REWIRE_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Group> groups_ REWIRE_GUARDED_BY(mutex_);
  // The names and numbers of this world's ids.
  std::map<CommunicatorId, std::pair<std::string, uint32_t>> ids_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::elastic
