#include "reconfig/rdma/driver.h"

#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace rewire::rdma {

absl::Status CallError(std::string_view call, std::string_view device, int error) {
  // Unlike Abseil: drivers return ENOSYS as well as EOPNOTSUPP for unsupported calls.
  const absl::StatusCode code = error == EOPNOTSUPP || error == ENOSYS
                                    ? absl::StatusCode::kUnimplemented
                                : error == ENOMEM ? absl::StatusCode::kResourceExhausted
                                : error == EIO || error == ENODEV ? absl::StatusCode::kUnavailable
                                                                  : absl::ErrnoToStatusCode(error);
  return {code, absl::StrCat(std::string(call), " on ", std::string(device), ": ",
                             std::generic_category().message(error), " (errno ", error, ")")};
}

}  // namespace rewire::rdma
