#include "bench/trainer/sampler.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/trainer/rng.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::trainer {

absl::StatusOr<Sampler> Sampler::Open(const std::string& path, int context, uint64_t seed) {
  std::string found = path;
  if (found.empty()) {
    for (const char* name : {"GPL-3", "Apache-2.0", "GPL-2", "LGPL-2.1", "MPL-2.0"}) {
      const std::string candidate = std::string("/usr/share/common-licenses/") + name;
      if (access(candidate.c_str(), R_OK) == 0) {
        found = candidate;
        break;
      }
    }
    if (found.empty()) {
      return absl::NotFoundError(
          "no text under /usr/share/common-licenses to train on; name one with --data FILE");
    }
  }
  Sampler sampler;
  UniqueFd file(open(found.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid())
    return absl::NotFoundError(absl::StrCat("--data ", found, ": ", strerror(errno)));
  uint8_t chunk[65536];
  for (;;) {
    const ssize_t n = read(file.get(), chunk, sizeof chunk);
    if (n == 0) break;
    if (n > 0) {
      sampler.text_.insert(sampler.text_.end(), chunk, chunk + n);
    } else if (errno != EINTR) {
      return absl::InvalidArgumentError(absl::StrCat("--data ", found, ": ", strerror(errno)));
    }
  }
  sampler.window_ = static_cast<size_t>(context) + 1;
  sampler.seed_ = seed;
  if (sampler.text_.size() < sampler.window_) {
    return absl::InvalidArgumentError(absl::StrCat("--data ", found, " has ", sampler.text_.size(),
                                                   " bytes; --context ", context,
                                                   " needs at least ", sampler.window_));
  }
  return sampler;
}

std::span<const uint8_t> Sampler::Window(uint64_t step, uint64_t index) const {
  const uint64_t places = text_.size() - window_ + 1;
  const uint64_t at = RandomKey(seed_, {0x64617461, step}).Bits(index) % places;
  return std::span(text_).subspan(at, window_);
}

}  // namespace rewire::trainer
