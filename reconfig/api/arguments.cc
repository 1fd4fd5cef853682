// Stores the last error of each thread and implements rewireResultString(), which librewire.so and
// librewire-moe.so both have; see arguments.h. Thread-safe.
#include "reconfig/api/arguments.h"

#include "rewire/rewire_result.h"

namespace rewire {
namespace {

thread_local std::string last_error;

}  // namespace

const std::string& LastError() { return last_error; }

rewireResult_t Fail(rewireResult_t result, const std::string& reason) noexcept {
  last_error = reason;
  return result;
}

rewireResult_t Fail(const absl::Status& status) noexcept {
  last_error = std::string(status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:  // a file of that name exists,
    case absl::StatusCode::kNotFound:       // or the directory does not
      return rewireInvalidArgument;
    case absl::StatusCode::kFailedPrecondition:
      return rewireInvalidUsage;
    case absl::StatusCode::kDeadlineExceeded:
      return rewireTimeout;
    case absl::StatusCode::kDataLoss:
      return rewireLost;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
      return rewireUnavailable;
    default:
      return rewireInternalError;
  }
}

}  // namespace rewire

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
      return "out of the job";
    case rewireInternalError:
      return "internal error";
  }
  return "unknown result";
}
