// Asks a member for the value behind a name (Purpose::kNames): the unique ids that rewireUniqueId()
// gives out, and the shapes of the registered tensors. Both sides prove that they have the key of
// names. Blocks up to the deadline; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/stream/fragment.h"

namespace rewire {

inline constexpr size_t kMaxValueBytes = 4 << 20;

// Nothing: the member answers, and does not know the name (yet).
absl::StatusOr<std::optional<std::string>> AskName(const WorldMember& member, const Key& key,
                                                   const WorldMember& asker, std::string_view name,
                                                   Time deadline);

}  // namespace rewire
