// Maps the names given to rewireUniqueId() to unique ids. Slot 0 mints an id; the other members and
// every joiner ask the members that have it. Also holds the facts that this member publishes for
// others. Thread-safe; Resolve() blocks up to its deadline.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

class Names {
 public:
  using Minter = std::function<absl::StatusOr<UniqueIdBytes>()>;

  // Returns the unique id of the name. asked: the members that may know the name. mint: empty,
  // except for slot 0.
  absl::StatusOr<UniqueIdBytes> Resolve(const std::string& name,
                                        const std::vector<WorldMember>& asked,
                                        const WorldMember& self, const Key& key, const Minter& mint,
                                        Time deadline);
  // Ends every current and later Resolve() with the reason.
  void Close(const std::string& reason);
  // Returns this member's value of a name, to answer another member.
  [[nodiscard]] std::optional<std::string> Find(std::string_view name) const;
  void Publish(const std::string& name, std::string value);
  // Returns whether this object holds a unique id with this identity.
  [[nodiscard]] bool GaveOut(const CommunicatorId& communicator) const;

 private:
  mutable Mutex mutex_;
  CondVar closed_;
  std::string reason_ REWIRE_GUARDED_BY(mutex_);  // not empty: closed
  std::map<std::string, std::string, std::less<>> values_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::elastic
