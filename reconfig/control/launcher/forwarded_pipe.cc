#include "reconfig/control/launcher/forwarded_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rewire::control {

absl::StatusOr<ForwardedPipe> ForwardedPipe::Make(std::string prefix, Output* to, UniqueFd* child) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("pipe: ", strerror(errno)));
  }
  child->reset(fds[1]);
  fcntl(fds[0], F_SETFL, O_NONBLOCK);  // the child's end blocks
  return ForwardedPipe(UniqueFd(fds[0]), std::move(prefix), to);
}

bool ForwardedPipe::ReadOnce() {
  if (!fd_.valid()) return false;
  char chunk[16384];
  ssize_t n = 0;
  do {
    n = read(fd_.get(), chunk, sizeof chunk);
  } while (n < 0 && errno == EINTR);
  if (n == 0) Close();
  if (n <= 0) return false;
  // Without a reader the member must see its own pipe break, as it would without Rewire.
  if (to_->broken()) {
    fd_.reset();
    return false;
  }
  lines_.Take(std::string_view(chunk, static_cast<size_t>(n)), to_->buffer());
  return true;
}

void ForwardedPipe::ReadToTheEnd() {
  while (ReadOnce()) {
  }
  if (fd_.valid()) Close();
}

void ForwardedPipe::Close() {
  lines_.End(to_->buffer());
  fd_.reset();
}

}  // namespace rewire::control
