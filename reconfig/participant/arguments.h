// Checks what a call of the C interface was given, up to the first thing that is wrong, which
// rewireLastError() then names:
//   const rewireResult_t wrong = Arguments("rewireX").Context(context).NotNull("id", id).result();
// Any thread.
#pragma once

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "reconfig/participant/context.h"

namespace rewire {

// The number in a C program's enum. Any may stand there, and C++ may read only those that are
// named.
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

  Arguments& Context(const rewireContext* context) {
    NotNull("context", context);
    if (result_ == rewireSuccess && context->detached) {
      result_ = Fail(rewireInvalidUsage, absl::StrCat(function_, ": context has been detached"));
    }
    return *this;
  }
  // The call is not made from inside the update function.
  Arguments& OutsideUpdate(const rewireContext* context) {
    if (result_ == rewireSuccess && context->updating) {
      result_ =
          Fail(rewireInvalidUsage, absl::StrCat(function_, ": called inside the update function"));
    }
    return *this;
  }
  Arguments& NotNull(const char* name, const void* value) {
    if (result_ == rewireSuccess && value == nullptr) {
      result_ = Fail(rewireInvalidArgument, absl::StrCat(function_, ": ", name, " is NULL"));
    }
    return *this;
  }
  // Not NULL, and as large as this version's struct at least: a later one's is larger.
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

 private:
  const char* const function_;
  rewireResult_t result_ = rewireSuccess;
};

}  // namespace rewire
