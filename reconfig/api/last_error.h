// The reason of this thread's last failed call of the C interface. Thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "rewire/rewire_result.h"

namespace rewire {

// Stores the reason for rewireLastError(), or rewireMoeLastError() in librewire-moe.so, of this
// thread, and returns the matching result.
rewireResult_t Fail(const absl::Status& status) noexcept;
rewireResult_t Fail(rewireResult_t result, const std::string& reason) noexcept;
// Valid until the thread's next failed call.
[[nodiscard]] const std::string& LastError();

}  // namespace rewire
