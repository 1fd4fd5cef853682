// Forwards the output of children; see output.h. Owned by the launcher's thread.
#include "reconfig/control/launcher/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

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

void LinePrefix::Take(std::string_view bytes, std::string* out) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const size_t room = std::min(end, kLongest - partial_.size());
    partial_.append(bytes.substr(0, room));
    bytes.remove_prefix(room);
    const bool ended = room == end && !bytes.empty();
    if (ended) bytes.remove_prefix(1);
    if (ended || partial_.size() == kLongest) {
      out->append(prefix_).append(partial_).push_back('\n');
      partial_.clear();
    }
  }
}

void LinePrefix::End(std::string* out) {
  if (partial_.empty()) return;
  out->append(prefix_).append(partial_).push_back('\n');
  partial_.clear();
}

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
