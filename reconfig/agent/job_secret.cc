#include "reconfig/agent/job_secret.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

absl::StatusOr<uint64_t> JobSecret(const std::string& path) {
  uint64_t secret = 0;
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.valid()) {
    char more = 0;
    if (read(fd.get(), &secret, sizeof secret) != ssize_t{sizeof secret} ||
        read(fd.get(), &more, 1) != 0) {
      return absl::DataLossError(absl::StrCat(path, " does not hold a job's secret of 8 bytes"));
    }
    return secret;
  }
  const auto failed = [&path](const char* what) {
    return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", strerror(errno)));
  };
  if (errno != ENOENT) return failed("open");
  if (getrandom(&secret, sizeof secret, 0) != ssize_t{sizeof secret}) return failed("getrandom");
  // Whole or not at all: the agent may be killed here.
  const std::string part = path + ".new";
  UniqueFd out(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!out.valid()) return failed("open");
  if (write(out.get(), &secret, sizeof secret) != ssize_t{sizeof secret}) return failed("write");
  if (fsync(out.get()) != 0 || rename(part.c_str(), path.c_str()) != 0) return failed("rename");
  return secret;
}

}  // namespace rewire
