#include "reconfig/elastic/participant/death_witness.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "reconfig/base/log.h"
#include "reconfig/elastic/protocol/codec.h"

namespace rewire::elastic {
namespace {

constexpr unsigned kUnshare = 1U << 1;  // CLOSE_RANGE_UNSHARE of linux/close_range.h

// The thread uses system calls without the C library's wrappers: sanitizers intercept these, and
// would take the thread's file numbers for those of the process.

// Gives the thread a file table of its own that has only `kept`. Returns false if the kernel
// cannot.
bool TakeOwnFiles(int kept) {
#ifdef SYS_close_range
  const auto file = static_cast<unsigned>(kept);
  return (file == 0 || syscall(SYS_close_range, 0U, file - 1, kUnshare) == 0) &&
         syscall(SYS_close_range, file + 1, UINT_MAX, kUnshare) == 0;
#else
  static_cast<void>(kept);
  return false;
#endif
}

// Returns -1 after a failure. A full queue of the listener is such a failure: a witness is not
// worth a wait.
int ConnectTo(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto file =
      static_cast<int>(syscall(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (file < 0 || syscall(SYS_connect, file, &address, sizeof address) != 0) return -1;
  return file;
}

std::string Greeting() {
  const absl::StatusOr<std::string> frame = Encode(Witness{});
  return frame.ok() ? *frame : "";
}

}  // namespace

DeathWitness::DeathWitness(std::string path)
    : path_(std::move(path)), greeting_(Greeting()), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_.valid()) return;
  // The program's signal handlers must not run on a thread without the program's files.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

DeathWitness::~DeathWitness() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof one) != sizeof one) {
    REWIRE_WARN("end the witness of this process: %s", std::strerror(errno));
  }
  thread_.join();
}

void DeathWitness::Run() const {
  pthread_setname_np(pthread_self(), "rewire-witness");
  const int stop = stop_.get();
  if (!TakeOwnFiles(stop)) return;
  const int agent = ConnectTo(path_);
  if (agent >= 0 && syscall(SYS_sendto, agent, greeting_.data(), greeting_.size(), MSG_NOSIGNAL,
                            nullptr, 0) == static_cast<long>(greeting_.size())) {
    pollfd files[] = {{stop, POLLIN, 0}, {agent, POLLIN, 0}};
    while (syscall(SYS_ppoll, files, 2, nullptr, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  // The end of the thread closes its files.
}

}  // namespace rewire::elastic
