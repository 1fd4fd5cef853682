#include "tests/simgpu/nccl/socket_net.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/socket.h"
#include "tests/simgpu/nccl/socket_stream.h"

namespace simnccl {
namespace {

// The content of the 128-byte handle. The last two fields are the connecting side's state.
struct Handle {
  sockaddr_in address;
  uint64_t key;
  int32_t fd_plus_one;
  int32_t unused;
};
static_assert(sizeof(Handle) <= kNetHandleBytes);

struct Listener {
  rewire::UniqueFd fd;
  uint64_t key = 0;
  rewire::UniqueFd visitor;  // connected, but its key has not been read yet
};

}  // namespace

ncclResult_t SocketNet::Init(uint64_t /*comm_id*/, int /*traffic_class*/, void** context) {
  *context = nullptr;
  return ncclSuccess;
}

ncclResult_t SocketNet::Finalize(void* /*context*/) { return ncclSuccess; }

ncclResult_t SocketNet::Devices(int* count) {
  *count = 1;
  return ncclSuccess;
}

ncclResult_t SocketNet::GetProperties(int /*device*/, NetProperties* properties) {
  *properties = NetProperties{};
  properties->max_comms = 65536;
  properties->max_p2p_bytes = properties->max_coll_bytes = size_t{1} << 40;
  return ncclSuccess;
}

ncclResult_t SocketNet::Listen(void* /*context*/, int /*device*/, void* handle,
                               void** listen_comm) {
  auto listener = std::make_unique<Listener>();
  Handle content{};
  SIMNCCL_TRY(ListenAt(&listener->fd, &content.address));
  if (::getrandom(&content.key, sizeof(content.key), 0) != sizeof(content.key)) {
    return Fail(ncclSystemError, "getrandom failed");
  }
  listener->key = content.key;
  std::memcpy(handle, &content, sizeof(content));
  *listen_comm = listener.release();
  return ncclSuccess;
}

ncclResult_t SocketNet::Connect(void* /*context*/, int /*device*/, void* handle, void** send_comm) {
  *send_comm = nullptr;
  Handle content;
  std::memcpy(&content, handle, sizeof(content));
  if (content.fd_plus_one == 0) {
    rewire::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return Fail(ncclSystemError, "socket: %s", std::strerror(errno));
    SetNoDelay(fd.get());
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&content.address),
                  sizeof(content.address)) != 0 &&
        errno != EINPROGRESS) {
      return Fail(ncclRemoteError, "socket transport: connect: %s", std::strerror(errno));
    }
    content.fd_plus_one = fd.release() + 1;
    std::memcpy(handle, &content, sizeof(content));
  }
  const int raw = content.fd_plus_one - 1;
  pollfd ready{raw, POLLOUT, 0};
  if (::poll(&ready, 1, 0) <= 0) return ncclSuccess;
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(raw, SOL_SOCKET, SO_ERROR, &error, &length);
  // A new connection has room for eight bytes.
  if (error != 0 ||
      ::send(raw, &content.key, sizeof(content.key), MSG_NOSIGNAL) != sizeof(content.key)) {
    AbandonConnect(handle);
    return Fail(ncclRemoteError, "socket transport: connect: %s", std::strerror(error));
  }
  content.fd_plus_one = 0;
  std::memcpy(handle, &content, sizeof(content));
  *send_comm = new SocketStream(rewire::UniqueFd(raw), true);
  return ncclSuccess;
}

void SocketNet::AbandonConnect(void* handle) {
  Handle content;
  std::memcpy(&content, handle, sizeof(content));
  rewire::UniqueFd closed(content.fd_plus_one - 1);
  content.fd_plus_one = 0;
  std::memcpy(handle, &content, sizeof(content));
}

ncclResult_t SocketNet::Accept(void* listen_comm, void** recv_comm) {
  *recv_comm = nullptr;
  auto* listener = static_cast<Listener*>(listen_comm);
  for (;;) {
    if (!listener->visitor.valid()) {
      listener->visitor.reset(
          ::accept4(listener->fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!listener->visitor.valid()) return ncclSuccess;
    }
    uint64_t key = 0;
    const ssize_t n = ::recv(listener->visitor.get(), &key, sizeof(key), MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return ncclSuccess;
    if (n > 0 && static_cast<size_t>(n) < sizeof(key)) return ncclSuccess;
    if (n <= 0 || key != listener->key) {
      listener->visitor.reset();  // unauthenticated peer
      continue;
    }
    (void)!::recv(listener->visitor.get(), &key, sizeof(key), 0);
    SetNoDelay(listener->visitor.get());
    *recv_comm = new SocketStream(std::move(listener->visitor), false);
    return ncclSuccess;
  }
}

ncclResult_t SocketNet::RegMr(void* /*comm*/, void* /*data*/, size_t /*bytes*/, int type,
                              void** mh) {
  *mh = nullptr;
  if (type == kNetPtrHost) return ncclSuccess;
  return Fail(ncclInternalError, "the socket transport takes host memory only");
}

ncclResult_t SocketNet::DeregMr(void* /*comm*/, void* /*mh*/) { return ncclSuccess; }

ncclResult_t SocketNet::Isend(void* send_comm, void* data, size_t bytes, int /*tag*/, void* /*mh*/,
                              void** request) {
  auto* stream = static_cast<SocketStream*>(send_comm);
  *request = stream->Add(data, bytes);
  return stream->Progress();
}

ncclResult_t SocketNet::Irecv(void* recv_comm, void* data, size_t bytes, int /*tag*/, void* /*mh*/,
                              void** request) {
  *request = static_cast<SocketStream*>(recv_comm)->Add(data, bytes);
  return ncclSuccess;
}

ncclResult_t SocketNet::Test(void* request, int* done, int* bytes) {
  auto* message = static_cast<SocketStream::Message*>(request);
  *done = 0;
  if (!message->complete) SIMNCCL_TRY(message->stream->Progress());
  if (!message->complete) return ncclSuccess;
  *done = 1;
  if (bytes != nullptr) *bytes = static_cast<int>(message->bytes);
  message->busy = false;
  return ncclSuccess;
}

ncclResult_t SocketNet::CloseSend(void* comm) {
  delete static_cast<SocketStream*>(comm);
  return ncclSuccess;
}

ncclResult_t SocketNet::CloseRecv(void* comm) {
  delete static_cast<SocketStream*>(comm);
  return ncclSuccess;
}

ncclResult_t SocketNet::CloseListen(void* comm) {
  delete static_cast<Listener*>(comm);
  return ncclSuccess;
}

int SocketNet::PollFd(void* comm, bool sending, short* events) {
  *events = sending ? POLLOUT : POLLIN;
  return static_cast<SocketStream*>(comm)->fd();
}

}  // namespace simnccl
