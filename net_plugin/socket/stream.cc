#include "net_plugin/socket/stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/send_queue.h"

namespace rewire::net {
namespace {

constexpr size_t kKept = 64 << 10;
constexpr size_t kSmall = 2048;
// A shorter rest of a payload is read together with what follows it.
constexpr size_t kDirect = 16 << 10;

absl::Status Broken(const char* what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(error)));
}

}  // namespace

Stream::Stream(UniqueFd fd)
    : fd_(std::move(fd)),
      loans_(std::make_unique<Loans>(fd_.get())),
      kept_(std::make_unique<char[]>(kKept)) {
  const int on = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Stream::~Stream() {
  if (!fd_.valid()) return;
  // What is left unread makes an end a reset, which may overtake what was sent.
  (void)TakeSeen();
  if (!loans_->empty()) {
    // The program gets back its memory now: what is still to be read there must not go out.
    sockaddr nobody{};
    nobody.sa_family = AF_UNSPEC;
    connect(fd_.get(), &nobody, sizeof nobody);
  }
  shutdown(fd_.get(), SHUT_RDWR);
}

absl::StatusOr<size_t> Stream::Write(const void* header, size_t header_bytes, const void* payload,
                                     size_t payload_bytes) {
  char together[kSmall];
  iovec parts[2] = {{const_cast<void*>(header), header_bytes},
                    {const_cast<void*>(payload), payload_bytes}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const bool small = header_bytes + payload_bytes <= sizeof together;
  if (small) {  // one plain call costs less than one with two parts
    std::memcpy(together, header, header_bytes);
    if (payload_bytes > 0) std::memcpy(together + header_bytes, payload, payload_bytes);
  }
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  for (;;) {
    const ssize_t n = small ? send(fd_.get(), together, header_bytes + payload_bytes, kFlags)
                            : sendmsg(fd_.get(), &message, kFlags);
    if (n < 0 && errno == EINTR) continue;
    const bool full = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (n < 0 && !full) return Broken("sending", errno);
    const size_t sent = full ? 0 : static_cast<size_t>(n);
    if (sent < header_bytes + payload_bytes && looks_left_ > 0 && SendQueueIsLong(fd_.get())) {
      looks_left_ = BoundSendQueue(fd_.get()) ? 0 : looks_left_ - 1;
    }
    return sent;
  }
}

absl::StatusOr<size_t> Stream::Lend(const void* header, size_t header_bytes, const void* payload,
                                    size_t payload_bytes, bool* lent) {
  *lent = false;
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  if (header_bytes > 0) {  // its place is used again at once
    const ssize_t n = send(fd_.get(), header, header_bytes, kFlags | MSG_MORE);
    if (n < static_cast<ssize_t>(header_bytes)) {
      return n < 0 ? Write(header, header_bytes, nullptr, 0) : static_cast<size_t>(n);
    }
  }
  const ssize_t n = send(fd_.get(), payload, payload_bytes, kFlags | MSG_ZEROCOPY);
  if (n > 0) {
    *lent = true;
    return header_bytes + static_cast<size_t>(n);
  }
  if (n < 0 && errno == EAGAIN) return header_bytes;
  // A process may lend only so much (ENOBUFS), and not all memory.
  absl::StatusOr<size_t> copied = Write(nullptr, 0, payload, payload_bytes);
  if (copied.ok()) *copied += header_bytes;
  return copied;
}

absl::Status Stream::TakeSeen() {
  while (seen_ > 0) {
    // TCP only drops them (MSG_TRUNC); others write them where they are already.
    const ssize_t n = recv(fd_.get(), kept_.get() + end_ - seen_, seen_, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Broken("receiving", n == 0 ? ECONNRESET : errno);
    seen_ -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> Stream::Fill(void* to, size_t bytes) {
  if (absl::Status taken = TakeSeen(); !taken.ok()) return taken;
  // Only an empty store is filled behind a payload: its bytes come first.
  std::memmove(kept_.get(), kept_.get() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
  const bool look = bytes == 0;
  iovec parts[2] = {{to, bytes}, {kept_.get() + end_, kKept - end_}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  for (;;) {
    const ssize_t n =
        look ? recv(fd_.get(), parts[1].iov_base, parts[1].iov_len, MSG_DONTWAIT | MSG_PEEK)
             : recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (n > 0) {
      const auto got = static_cast<size_t>(n);
      if (got > bytes) end_ += got - bytes;
      if (look) seen_ = got;
      return got;
    }
    if (n == 0) return absl::OutOfRangeError("the peer has closed the connection");
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    return Broken("receiving", errno);
  }
}

absl::StatusOr<bool> Stream::ReadHeader(FrameHeader* header) {
  if (end_ - begin_ < sizeof *header) {
    const absl::StatusOr<size_t> got = Fill(nullptr, 0);
    if (!got.ok()) return got.status();
    if (end_ - begin_ < sizeof *header) return false;
  }
  std::memcpy(header, kept_.get() + begin_, sizeof *header);
  begin_ += sizeof *header;
  return true;
}

absl::StatusOr<size_t> Stream::ReadPayload(void* to, size_t bytes) {
  if (begin_ == end_) {
    // A large rest goes where it belongs at once; what follows it is kept.
    const absl::StatusOr<size_t> got = Fill(to, bytes >= kDirect ? bytes : 0);
    if (!got.ok()) return got.status();
    if (bytes >= kDirect) return std::min(*got, bytes);
  }
  const size_t n = std::min(bytes, end_ - begin_);
  if (n > 0) std::memcpy(to, kept_.get() + begin_, n);
  begin_ += n;
  return n;
}

}  // namespace rewire::net
