#include "tests/simgpu/nccl/socket_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "tests/simgpu/nccl/error.h"

namespace simnccl {

SocketStream::Message* SocketStream::Add(void* data, size_t bytes) {
  Message* m = &messages_[added_ % kNetMaxRequests];
  if (m->busy) return nullptr;
  *m = Message{};
  m->stream = this;
  m->data = static_cast<char*>(data);
  m->bytes = bytes;
  m->header = bytes;
  m->busy = true;
  ++added_;
  return m;
}

ncclResult_t SocketStream::MoveOut(Message* m, bool* blocked) {
  iovec parts[2] = {
      {reinterpret_cast<char*>(&m->header) + m->header_done, sizeof(m->header) - m->header_done},
      {m->data + m->done, m->bytes - m->done}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) {
    if (errno == EAGAIN || errno == EINTR) {
      *blocked = errno == EAGAIN;
      return ncclSuccess;
    }
    return Fail(ncclRemoteError, "socket transport: send: %s", std::strerror(errno));
  }
  const size_t header = std::min<size_t>(n, parts[0].iov_len);
  m->header_done += header;
  m->done += static_cast<size_t>(n) - header;
  m->complete = m->header_done == sizeof(m->header) && m->done == m->bytes;
  return ncclSuccess;
}

ncclResult_t SocketStream::MoveIn(Message* m, bool* blocked) {
  const bool in_header = m->header_done < sizeof(m->header);
  char* to = in_header ? reinterpret_cast<char*>(&m->header) + m->header_done : m->data + m->done;
  const size_t room = in_header ? sizeof(m->header) - m->header_done : m->bytes - m->done;
  if (room > 0) {
    const ssize_t n = ::recv(fd_.get(), to, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      *blocked = errno == EAGAIN;
      return ncclSuccess;
    }
    if (n <= 0) {
      return Fail(ncclRemoteError, "socket transport: recv: %s",
                  n == 0 ? "the peer closed the connection" : std::strerror(errno));
    }
    (in_header ? m->header_done : m->done) += static_cast<size_t>(n);
  }
  if (m->header_done < sizeof(m->header)) return ncclSuccess;
  if (in_header) {
    if (m->header > m->bytes) {
      return Fail(ncclInvalidUsage, "socket transport: message truncated: %llu bytes for %llu",
                  static_cast<unsigned long long>(m->header),
                  static_cast<unsigned long long>(m->bytes));
    }
    m->bytes = m->header;
  }
  m->complete = m->done == m->bytes;
  return ncclSuccess;
}

ncclResult_t SocketStream::Progress() {
  bool blocked = false;
  while (!blocked && finished_ < added_) {
    Message* m = &messages_[finished_ % kNetMaxRequests];
    SIMNCCL_TRY(sending_ ? MoveOut(m, &blocked) : MoveIn(m, &blocked));
    if (m->complete) ++finished_;
  }
  return ncclSuccess;
}

}  // namespace simnccl
