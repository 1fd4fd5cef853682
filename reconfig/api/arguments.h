// Errors of the C interface: Fail() stores the reason of this thread's last failed call, and
// Arguments checks the arguments of one call and keeps the first error, which rewireLastError()
// then returns:
//   const rewireResult_t wrong = Arguments("rewireX").NotNull("id", id).result();
// The functions are thread-safe; Arguments is thread-compatible.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rewire/rewire_result.h"

namespace rewire {

// Stores the reason for rewireLastError(), or rewireMoeLastError() in librewire-moe.so, of this
// thread, and returns the matching result.
rewireResult_t Fail(const absl::Status& status) noexcept;
rewireResult_t Fail(rewireResult_t result, const std::string& reason) noexcept;
// Valid until the thread's next failed call.
[[nodiscard]] const std::string& LastError();

// Returns the number in a C program's enum. A C program may store any number, but C++ may read only
// the enumerators.
template <typename Enum>
uint32_t NumberOf(const Enum& value) {
  uint32_t number = 0;
  static_assert(sizeof number == sizeof value);
  std::memcpy(&number, &value, sizeof number);
  return number;
}

class Arguments {
 public:
  explicit Arguments(const char* function) : function_(function) {}

  Arguments& NotNull(const char* name, const void* value) {
    if (result_ == rewireSuccess && value == nullptr) {
      result_ = Fail(rewireInvalidArgument, absl::StrCat(function_, ": ", name, " is NULL"));
    }
    return *this;
  }
  // Checks that the struct is not NULL and has at least this version's size. A later version's
  // struct is larger.
  template <typename Struct>
  Arguments& Sized(const char* name, const char* type, const Struct* value) {
    NotNull(name, value);
    if (result_ == rewireSuccess && value->size < sizeof(Struct)) {
      result_ = Fail(rewireInvalidArgument,
                     absl::StrCat(function_, ": ", name, "->size=", value->size,
                                  " must be at least sizeof(", type, ")=", sizeof(Struct)));
    }
    return *this;
  }
  [[nodiscard]] rewireResult_t result() const { return result_; }

 protected:
  const char* const function_;
  rewireResult_t result_ = rewireSuccess;
};

}  // namespace rewire
