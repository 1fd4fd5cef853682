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
constexpr size_t kMaxStrangers = 4096;

}  // namespace

ncclResult_t Mailbox::Open() { return ListenAt(&listener_, &address_); }

// Accepts connections and reads their Hello. A connection with a valid Hello becomes a visitor.
void Mailbox::Pump() {
  for (;;) {
    rewire::UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) break;
    SetNoDelay(fd.get());
    if (strangers_.size() >= kMaxStrangers) strangers_.pop_front();
    Stranger stranger;
    stranger.fd = std::move(fd);
    stranger.since = rewire::Now();
    strangers_.push_back(std::move(stranger));
  }
  for (auto it = strangers_.begin(); it != strangers_.end();) {
    const ssize_t n = ::recv(it->fd.get(), it->bytes + it->got, sizeof(Hello) - it->got, 0);
    bool drop = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n > 0) it->got += static_cast<size_t>(n);
    uint64_t magic = 0;
    std::memcpy(&magic, it->bytes, sizeof(magic));
    if (it->got >= sizeof(magic) && magic != Hello::kMagic) drop = true;
    if (!drop && it->got == sizeof(Hello)) {
      Visitor visitor;
      std::memcpy(static_cast<void*>(&visitor.hello), it->bytes, sizeof(Hello));
      visitor.fd = std::move(it->fd);
      visitors_.push_back(std::move(visitor));
      drop = true;
    } else if (rewire::Now() - it->since > kSilence) {
      drop = true;
    }
    it = drop ? strangers_.erase(it) : std::next(it);
  }
}

bool Mailbox::TakeNow(const std::function<bool(const Hello&)>& wanted, Visitor* visitor) {
  rewire::MutexLock lock(&mutex_);
  Pump();
  for (auto it = visitors_.begin(); it != visitors_.end(); ++it) {
    if (!wanted(it->hello)) continue;
    *visitor = std::move(*it);
    visitors_.erase(it);
    return true;
  }
  return false;
}

void Mailbox::AppendPollFds(std::vector<pollfd>* fds) {
  rewire::MutexLock lock(&mutex_);
  fds->push_back({listener_.get(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) fds->push_back({stranger.fd.get(), POLLIN, 0});
}

ncclResult_t Mailbox::Take(const std::function<bool(const Hello&)>& wanted,
                           const Patience& patience, Visitor* visitor) {
  while (!TakeNow(wanted, visitor)) {
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

ncclResult_t Visit(const sockaddr_in& address, const Hello& hello, const Patience& patience,
                   rewire::UniqueFd* fd) {
  SIMNCCL_TRY(ConnectTo(address, patience, fd));
  return SendAll(fd->get(), &hello, sizeof(hello), patience);
}

}  // namespace simnccl
