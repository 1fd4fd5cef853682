// The unique ids behind the names given to rewireUniqueId(): slot 0 mints, the others and every
// joiner ask the members that have it. Thread-safe; Resolve() blocks up to its deadline.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/transition/messages.h"

namespace rewire {

class Names {
 public:
  using Minter = std::function<absl::StatusOr<UniqueIdBytes>()>;

  // asked: the members that may know the name. mint: empty, except for slot 0.
  absl::StatusOr<UniqueIdBytes> Resolve(const std::string& name,
                                        const std::vector<WorldMember>& asked,
                                        const WorldMember& self, const Key& key, const Minter& mint,
                                        Time deadline);
  // Ends every Resolve(), now and later, with the reason.
  void Close(const std::string& reason);
  // What this member knows, for others.
  [[nodiscard]] std::optional<std::string> Find(std::string_view name) const;
  void Publish(const std::string& name, std::string value);
  // Whether a unique id with this identity was given out here.
  [[nodiscard]] bool GaveOut(const CommunicatorId& communicator) const;

 private:
  mutable Mutex mutex_;
  CondVar closed_;
  std::string reason_ REWIRE_GUARDED_BY(mutex_);  // not empty: closed
  std::map<std::string, std::string, std::less<>> values_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire
