#include "shim/core/bootstrap_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <functional>

#include "reconfig/base/unique_fd.h"

namespace rewire::shim {

namespace {

union Address {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

// The beginning of ncclBootstrapHandle, which is the content of a unique id.
struct Handle {
  uint64_t magic;
  Address address;
};
static_assert(sizeof(Handle) <= sizeof(ncclUniqueId));

bool Same(const Address& a, const Address& b) {
  if (a.any.sa_family != b.any.sa_family) return false;
  if (a.any.sa_family == AF_INET) {
    return a.v4.sin_port == b.v4.sin_port &&
           std::memcmp(&a.v4.sin_addr, &b.v4.sin_addr, sizeof a.v4.sin_addr) == 0;
  }
  return a.any.sa_family == AF_INET6 && a.v6.sin6_port == b.v6.sin6_port &&
         std::memcmp(&a.v6.sin6_addr, &b.v6.sin6_addr, sizeof a.v6.sin6_addr) == 0;
}

bool ListensOn(int fd, const Address& address) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) {
    return false;
  }
  Address own{};
  length = sizeof own;
  return getsockname(fd, &own.any, &length) == 0 && Same(own, address);
}

// Returns the number of the socket; 0: `fd` is no open file.
uint64_t NumberOf(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

// Calls `each` for this process's open descriptors until it returns true.
void ForEachDescriptor(const std::function<bool(int)>& each) {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return;
  bool done = false;
  while (const dirent* const entry = done ? nullptr : readdir(directory)) {
    char* end = nullptr;
    const long fd = std::strtol(entry->d_name, &end, 10);
    if (end != entry->d_name) done = each(static_cast<int>(fd));
  }
  closedir(directory);
}

}  // namespace

uint64_t BootstrapRootOf(const ncclUniqueId& id) {
  Handle handle{};
  std::memcpy(&handle, id.internal, sizeof handle);
  uint64_t root = 0;
  ForEachDescriptor([&](int fd) {
    if (ListensOn(fd, handle.address)) root = NumberOf(fd);
    return root != 0;
  });
  return root;
}

void EndBootstrapRoot(uint64_t root) {
  ForEachDescriptor([&](int fd) {
    if (NumberOf(fd) != root) return false;
    // The root may close the descriptor now, and another thread may get its number.
    const UniqueFd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (own.get() >= 0 && NumberOf(own.get()) == root) shutdown(own.get(), SHUT_RDWR);
    return true;
  });
}

}  // namespace rewire::shim
