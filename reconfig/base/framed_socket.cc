#include "reconfig/base/framed_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "reconfig/base/bytes.h"

namespace rewire {
namespace {

constexpr size_t kHeader = 4;

}  // namespace

SocketStatus FramedSocket::ReadReady() {
  char chunk[16384];
  for (int i = 0; i < 16; ++i) {
    const ssize_t n = recv(fd_.get(), chunk, sizeof chunk, 0);
    if (n > 0) {
      in_.append(chunk, static_cast<size_t>(n));
      if (static_cast<size_t>(n) < sizeof chunk) return {};
    } else if (n == 0) {
      return {SocketCode::kClosed, "the peer closed the connection"};
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return {};
    } else if (errno != EINTR) {
      return {errno == ECONNRESET ? SocketCode::kClosed : SocketCode::kFailed,
              std::string("recv: ") + strerror(errno)};
    }
  }
  return {};
}

std::optional<std::string> FramedSocket::Next(SocketStatus* status) {
  *status = {};
  const std::string_view rest = std::string_view(in_).substr(taken_);
  if (rest.size() < kHeader) return std::nullopt;
  const size_t size = kHeader + ByteReader(rest).Get<uint32_t>();
  if (size > max_frame_) {
    *status = {SocketCode::kOversize, "a frame of " + std::to_string(size) + " bytes; at most " +
                                          std::to_string(max_frame_)};
    return std::nullopt;
  }
  if (rest.size() < size) return std::nullopt;
  std::string frame(rest.substr(0, size));
  taken_ += size;
  if (taken_ == in_.size() || taken_ >= (64u << 10)) {
    in_.erase(0, taken_);
    taken_ = 0;
  }
  return frame;
}

SocketStatus FramedSocket::Queue(std::string_view frame) {
  if (frame.size() > max_frame_) {
    return {SocketCode::kOversize, "a frame of " + std::to_string(frame.size()) +
                                       " bytes; at most " + std::to_string(max_frame_)};
  }
  if (out_.size() - sent_ + frame.size() > max_queue_) {
    return {SocketCode::kOversize, "the reader is too slow: " +
                                       std::to_string(out_.size() - sent_) + " bytes wait for it"};
  }
  if (sent_ > 0) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  out_.append(frame);
  return {};
}

SocketStatus FramedSocket::Flush() {
  while (WantsWrite()) {
    const ssize_t n = send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (n >= 0) {
      sent_ += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return {};
    } else if (errno != EINTR) {
      return {errno == ECONNRESET || errno == EPIPE ? SocketCode::kClosed : SocketCode::kFailed,
              std::string("send: ") + strerror(errno)};
    }
  }
  out_.clear();
  sent_ = 0;
  return {};
}

SocketStatus FramedSocket::Send(std::string_view frame, Time deadline) {
  SocketStatus s = Queue(frame);
  while (s.ok() && WantsWrite()) {
    s = Flush();
    if (s.ok() && WantsWrite() && !WaitReady(fd_.get(), POLLOUT, deadline)) {
      return {SocketCode::kTimeout, "send: timed out"};
    }
  }
  return s;
}

SocketStatus FramedSocket::Receive(std::string* frame, Time deadline) {
  for (;;) {
    SocketStatus s;
    if (std::optional<std::string> next = Next(&s)) {
      *frame = std::move(*next);
      return {};
    }
    if (!s.ok()) return s;
    if (!WaitReady(fd_.get(), POLLIN, deadline)) {
      return {SocketCode::kTimeout, "receive: timed out"};
    }
    const size_t before = in_.size();
    s = ReadReady();
    if (!s.ok() && in_.size() == before) return s;
  }
}

}  // namespace rewire
