#include "tests/simgpu/nccl/mailbox.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "tests/simgpu/nccl/abort.h"
#include "tests/simgpu/nccl/error.h"

namespace simnccl {
namespace {

// Limits of accepted connections that have not sent their whole Hello: time, and number.
constexpr rewire::Duration kSilence = rewire::seconds(10);
constexpr size_t kMaxAccepted = 4096;

}  // namespace

ncclResult_t Mailbox::Open() { return ListenAt(&listener_, &address_); }

// Accepts connections and reads their Hello. A connection with a valid Hello becomes a caller.
void Mailbox::ReadAccepted() {
  for (;;) {
    rewire::UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) break;
    SetNoDelay(fd.get());
    if (accepted_.size() >= kMaxAccepted) accepted_.pop_front();
    Accepted accepted;
    accepted.fd = std::move(fd);
    accepted.since = rewire::Now();
    accepted_.push_back(std::move(accepted));
  }
  for (auto it = accepted_.begin(); it != accepted_.end();) {
    const ssize_t n = ::recv(it->fd.get(), it->bytes + it->got, sizeof(Hello) - it->got, 0);
    bool drop = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n > 0) it->got += static_cast<size_t>(n);
    uint64_t magic = 0;
    std::memcpy(&magic, it->bytes, sizeof(magic));
    if (it->got >= sizeof(magic) && magic != Hello::kMagic) drop = true;
    if (!drop && it->got == sizeof(Hello)) {
      Caller caller;
      std::memcpy(static_cast<void*>(&caller.hello), it->bytes, sizeof(Hello));
      caller.fd = std::move(it->fd);
      callers_.push_back(std::move(caller));
      drop = true;
    } else if (rewire::Now() - it->since > kSilence) {
      drop = true;
    }
    it = drop ? accepted_.erase(it) : std::next(it);
  }
}

bool Mailbox::TakeNow(const std::function<bool(const Hello&)>& wanted, Caller* caller) {
  rewire::MutexLock lock(&mutex_);
  ReadAccepted();
  for (auto it = callers_.begin(); it != callers_.end(); ++it) {
    if (!wanted(it->hello)) continue;
    *caller = std::move(*it);
    callers_.erase(it);
    return true;
  }
  return false;
}

void Mailbox::AppendPollFds(std::vector<pollfd>* fds) {
  rewire::MutexLock lock(&mutex_);
  fds->push_back({listener_.get(), POLLIN, 0});
  for (const Accepted& accepted : accepted_) fds->push_back({accepted.fd.get(), POLLIN, 0});
}

ncclResult_t Mailbox::Take(const std::function<bool(const Hello&)>& wanted,
                           const Patience& patience, Caller* caller) {
  while (!TakeNow(wanted, caller)) {
    SIMNCCL_TRY(patience.Check("waiting for a peer's connection"));
    std::vector<pollfd> fds;
    AppendPollFds(&fds);
    if (patience.abort != nullptr) fds.push_back({patience.abort->fd(), POLLIN, 0});
    // Another thread may accept the connection for which this thread waits, so check again after at
    // most 20 ms.
    if (::poll(fds.data(), fds.size(), patience.PollMs(20)) < 0 && errno != EINTR) {
      return Fail(ncclSystemError, "poll: %s", std::strerror(errno));
    }
  }
  return ncclSuccess;
}

ncclResult_t Call(const sockaddr_in& address, const Hello& hello, const Patience& patience,
                  rewire::UniqueFd* fd) {
  SIMNCCL_TRY(ConnectTo(address, patience, fd));
  return SendAll(fd->get(), &hello, sizeof(hello), patience);
}

}  // namespace simnccl
