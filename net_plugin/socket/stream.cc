#include "net_plugin/socket/stream.h"

#include <linux/errqueue.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/address.h"
#include "reconfig/base/check.h"

namespace rewire::net {
namespace {

// The largest frame that Write() copies into one buffer.
constexpr size_t kSmall = 2048;
// The read-ahead holds a small message, or the beginning of a large message, whose bytes are then
// copied a second time.
constexpr size_t kAhead = 4096;
// The read-ahead may follow an incomplete header.
constexpr size_t kKept = sizeof(FrameHeader) + kAhead;

constexpr uint32_t kShortRoundTripUs = 10;
constexpr int kShortQueue = 256 << 10;  // bytes of SO_SNDBUF

// True if the socket's send buffer is larger than the limit for a short round trip.
bool SendQueueIsLong(int fd) {
  int size = 0;
  socklen_t bytes = sizeof size;
  // Linux returns twice the value that was set.
  return getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &bytes) == 0 && size > 2 * kShortQueue;
}

bool AllowLoans(int fd) {
  const int on = 1;
  return setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0;
}

bool IsErrorReport(const cmsghdr& c) {
  return (c.cmsg_level == SOL_IP && c.cmsg_type == IP_RECVERR) ||
         (c.cmsg_level == SOL_IPV6 && c.cmsg_type == IPV6_RECVERR);
}

}  // namespace

Loans::Loans(int fd) : fd_(fd), on_(AllowLoans(fd)) {}

std::vector<void*> Loans::TakeBack() {
  std::vector<void*> out;
  while (!owners_.empty()) {
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(sock_extended_err) + sizeof(sockaddr_in6))];
    msghdr message{};
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    if (recvmsg(fd_, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) break;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (!IsErrorReport(*c)) continue;
      sock_extended_err e{};
      std::memcpy(&e, CMSG_DATA(c), sizeof e);
      if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
      if ((e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0) on_ = false;
      // The kernel reports the range ee_info to ee_data, modulo 2^32.
      for (uint32_t n = e.ee_info - first_; n <= e.ee_data - first_ && n < owners_.size(); ++n) {
        if (void* owner = std::exchange(owners_[n], nullptr)) out.push_back(owner);
      }
    }
    while (!owners_.empty() && owners_.front() == nullptr) {
      owners_.pop_front();
      ++first_;
    }
  }
  return out;
}

std::optional<int> SendBufferOf(uint32_t round_trip_us) {
  if (round_trip_us > kShortRoundTripUs) return std::nullopt;
  return kShortQueue;
}

bool BoundSendQueue(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  // tcpi_min_rtt exists since Linux 4.6. The minimum is used, because handshakes also wait for
  // processors.
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
      bytes < offsetof(tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt) {
    return false;
  }
  const std::optional<int> size = SendBufferOf(info.tcpi_min_rtt);
  return size.has_value() && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &*size, sizeof *size) == 0;
}

absl::Status Stream::PeerError(const char* operation, int error) const {
  return PeerFault(absl::StrCat(operation, " ", peer_), error);
}

absl::StatusOr<size_t> Stream::Received(ssize_t n) const {
  if (n > 0) return static_cast<size_t>(n);
  if (n == 0) {
    return absl::OutOfRangeError(
        absl::StrCat("receive from ", peer_, ": the peer has closed the connection"));
  }
  // A non-blocking call is rarely interrupted; the next poll retries.
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return size_t{0};
  return PeerError("receive from", errno);
}

Stream::Stream(UniqueFd fd)
    : fd_(std::move(fd)),
      peer_(PeerText(fd_.get())),
      loans_(std::make_unique<Loans>(fd_.get())),
      kept_(std::make_unique<char[]>(kKept)) {
  const int on = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Stream::~Stream() {
  if (!fd_.valid()) return;
  // Unread data would turn the close into a reset, which may overtake sent data.
  (void)TakeSeen();
  if (!loans_->empty()) {
    // The program gets its memory back now, so the kernel must not send from it any more. A connect
    // to AF_UNSPEC drops the connection and its send queue.
    sockaddr nobody{};
    nobody.sa_family = AF_UNSPEC;
    (void)connect(fd_.get(), &nobody, sizeof nobody);  // the descriptor is closed in any case
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
  if (small) {  // one plain call costs less than a call with two parts
    if (header_bytes > 0) std::memcpy(together, header, header_bytes);
    if (payload_bytes > 0) std::memcpy(together + header_bytes, payload, payload_bytes);
  }
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  for (;;) {
    const ssize_t n = small ? send(fd_.get(), together, header_bytes + payload_bytes, kFlags)
                            : sendmsg(fd_.get(), &message, kFlags);
    if (n < 0 && errno == EINTR) continue;
    const bool full = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (n < 0 && !full) return PeerError("send to", errno);
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
  if (header_bytes > 0) {  // the caller reuses the header's memory at once
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
  // The kernel limits the pinned memory of a process (ENOBUFS), and cannot pin all kinds of memory.
  absl::StatusOr<size_t> copied = Write(nullptr, 0, payload, payload_bytes);
  if (copied.ok()) *copied += header_bytes;
  return copied;
}

absl::Status Stream::TakeSeen() {
  while (seen_ > 0) {
    char again[kAhead];
    const ssize_t n = recv(fd_.get(), again, seen_, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return PeerError("receive from", n == 0 ? ECONNRESET : errno);
    seen_ -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Stream::Look() {
  std::memmove(kept_.get(), kept_.get() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
  if (seen_ == 0) {
    const absl::StatusOr<size_t> there =
        Received(recv(fd_.get(), kept_.get() + end_, kAhead, MSG_DONTWAIT | MSG_PEEK));
    if (!there.ok()) return there.status();
    seen_ = *there;
    end_ += *there;
    return *there > 0;
  }
  // Takes the peeked bytes, and peeks for more in the same call.
  char again[2 * kAhead];
  const absl::StatusOr<size_t> taken =
      Received(recv(fd_.get(), again, seen_ + kAhead, MSG_DONTWAIT));
  if (!taken.ok()) return taken.status();
  const size_t seen = std::min(*taken, seen_);
  seen_ -= seen;
  std::memcpy(kept_.get() + end_, again + seen, *taken - seen);
  end_ += *taken - seen;
  return *taken > seen;
}

absl::StatusOr<size_t> Stream::ReceiveTo(void* to, size_t bytes) {
  char again[kAhead];  // peeked bytes are copied a second time
  REWIRE_DCHECK(Empty());
  iovec parts[3] = {{again, seen_}, {to, bytes}, {kept_.get(), kAhead}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 3;
  const absl::StatusOr<size_t> taken = Received(recvmsg(fd_.get(), &message, MSG_DONTWAIT));
  if (!taken.ok()) return taken;
  const size_t seen = std::min(*taken, seen_);
  const size_t direct = std::min(*taken - seen, bytes);
  seen_ -= seen;
  begin_ = 0;
  end_ = *taken - seen - direct;
  return direct;
}

absl::StatusOr<bool> Stream::ReadHeader(FrameHeader* header) {
  if (end_ - begin_ < sizeof *header) {
    const absl::StatusOr<bool> there = Look();
    if (!there.ok()) return there.status();
    if (end_ - begin_ < sizeof *header) return false;
  }
  std::memcpy(header, kept_.get() + begin_, sizeof *header);
  begin_ += sizeof *header;
  return true;
}

absl::StatusOr<size_t> Stream::ReadPayload(void* to, size_t bytes) {
  const size_t kept = std::min(bytes, end_ - begin_);
  if (kept > 0) std::memcpy(to, kept_.get() + begin_, kept);
  begin_ += kept;
  if (kept == bytes) return kept;
  const absl::StatusOr<size_t> more = ReceiveTo(static_cast<char*>(to) + kept, bytes - kept);
  if (!more.ok()) return kept > 0 ? kept : more;
  return kept + *more;
}

}  // namespace rewire::net
