#include "reconfig/api/last_error.h"

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
