// TCP with a deadline and an abort, for the bootstrap and the socket transport. IPv4. Thread-safe.
#pragma once

#include <netinet/in.h>

#include <cstddef>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"

namespace simnccl {

class Abort;

// The conditions that end a wait early.
struct Patience {
  rewire::Time deadline;
  const Abort* abort;  // may be null

  // Returns ncclSuccess before the deadline and without an abort.
  [[nodiscard]] ncclResult_t Check(const char* what) const;
  // Returns the milliseconds until the deadline, at most `cap`.
  [[nodiscard]] int PollMs(int cap = 1000) const;
};

// Finds the interface to use: NCCL_SOCKET_IFNAME (prefixes; "=" exact; "^" excludes), else
// loopback.
ncclResult_t InterfaceAddress(sockaddr_in* address);

// Opens a listening, non-blocking socket on a free port of the interface.
ncclResult_t ListenAt(rewire::UniqueFd* fd, sockaddr_in* address);
// Opens a connected, non-blocking socket without delay.
ncclResult_t ConnectTo(const sockaddr_in& address, const Patience& patience, rewire::UniqueFd* fd);
void SetNoDelay(int fd);

ncclResult_t SendAll(int fd, const void* data, size_t bytes, const Patience& patience);
// Returns ncclRemoteError if the other side has closed.
ncclResult_t RecvAll(int fd, void* data, size_t bytes, const Patience& patience);

// Waits until `fd` is ready for `events` or the patience ends.
ncclResult_t WaitFor(int fd, short events, const Patience& patience, const char* what);

}  // namespace simnccl
