// Implements rewireResultString(), which librewire.so and librewire-moe.so both have.
#include "reconfig/api/arguments.h"
#include "rewire/rewire_result.h"

extern "C" const char* rewireResultString(rewireResult_t result) noexcept {
  switch (rewire::NumberOf(result)) {
    case rewireSuccess:
      return "success";
    case rewireInvalidArgument:
      return "invalid argument";
    case rewireInvalidUsage:
      return "invalid usage";
    case rewireUnavailable:
      return "unavailable";
    case rewireTimeout:
      return "timeout";
    case rewireLost:
      return "state is lost";
    case rewireInternalError:
      return "internal error";
  }
  return "unknown result";
}
