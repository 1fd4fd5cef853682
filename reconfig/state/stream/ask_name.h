// Asks a member for the value of a name (Purpose::kNames): a unique id for rewireUniqueId(), or a
// fact that a member publishes, such as its registered tensors. Both sides prove that they have the
// key of names. Blocks up to the deadline. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/state/stream/stream_messages.h"

namespace rewire::state {

inline constexpr size_t kMaxValueBytes = 4 << 20;

// Returns the value, or nullopt when the member answers but does not know the name (yet).
absl::StatusOr<std::optional<std::string>> AskName(const WorldMember& member, const Key& key,
                                                   const WorldMember& asker, std::string_view name,
                                                   Time deadline);

}  // namespace rewire::state
