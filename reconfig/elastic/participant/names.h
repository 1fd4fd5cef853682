// Maps the names given to rewireUniqueId() to unique ids. Slot 0 mints an id; the other members and
// every joiner ask the members that have it. Also holds the facts that this member publishes for
// others, and asks others for theirs. Thread-safe; Resolve() and Ask() block up to their deadlines.
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

// Names under which a member publishes its own facts: its registered tensors (shape_list.h), its
// NodeIdentity(), and its memory offer (EncodePeerOffer). No program's name begins with a zero
// byte.
inline constexpr std::string_view kShapesName{"\0shapes", 7};
inline constexpr std::string_view kNodeName{"\0node", 5};
inline constexpr std::string_view kOfferName{"\0offer", 6};
// The unique ids of group communicators have names that begin so.
inline constexpr std::string_view kGroupName{"\0group communicator", 19};

class Names {
 public:
  using Minter = std::function<absl::StatusOr<UniqueIdBytes>()>;
  using Ended = std::function<absl::Status()>;
  // self: how this member introduces itself to the members that it asks.
  explicit Names(WorldMember self) : self_(std::move(self)) {}

  // Sets the key with which the members of the job ask each other for names.
  void SetKey(const Key& key);
  // Returns the unique id of the name. asked: the members that may know the name. mint: empty,
  // except for slot 0. ended: an error ends the wait.
  absl::StatusOr<UniqueIdBytes> Resolve(const std::string& name,
                                        const std::vector<WorldMember>& asked, const Minter& mint,
                                        Time deadline, const Ended& ended);
  // Asks another member for the value of a name; nullopt: that member does not know the name (yet).
  absl::StatusOr<std::optional<std::string>> Ask(const WorldMember& member, std::string_view name,
                                                 Duration within = seconds(1)) const;
  // Returns the NodeIdentity() of a member; empty: the member does not answer within a short time.
  [[nodiscard]] std::string NodeOf(const WorldMember& member) const;
  // Ends every current and later Resolve() with the reason.
  void Close(const std::string& reason);
  // Returns this member's value of a name, to answer another member.
  [[nodiscard]] std::optional<std::string> Find(std::string_view name) const;
  void Publish(const std::string& name, std::string value);
  // Drops all values whose names begin so.
  void Forget(std::string_view prefix);
  // Returns whether this object holds a unique id with this identity.
  [[nodiscard]] bool GaveOut(const CommunicatorId& communicator) const;

 private:
  [[nodiscard]] Key key() const;

  const WorldMember self_;
  mutable Mutex mutex_;
  CondVar closed_;
  Key key_ REWIRE_GUARDED_BY(mutex_);
  std::string reason_ REWIRE_GUARDED_BY(mutex_);  // not empty: closed
  std::map<std::string, std::string, std::less<>> values_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::elastic
