#include "reconfig/control/launcher/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace rewire::control {

void Output::WritePiece() {
  if (!pending()) {
    buffer_.clear();
    written_ = 0;
    return;
  }
  const ssize_t n =
      write(fd_, buffer_.data() + written_, std::min(kPiece, buffer_.size() - written_));
  if (n < 0) {
    if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EPIPE) {
      broken_ = true;
    } else {
      Drop(errno);
    }
    return;
  }
  written_ += static_cast<size_t>(n);
  if (written_ == buffer_.size() || written_ > kFull) {
    buffer_.erase(0, written_);
    written_ = 0;
  }
}

void Output::Drop(int error) {
  if (!reported_) error_ = error;
  reported_ = true;
  buffer_.clear();
  written_ = 0;
}

}  // namespace rewire::control
