// Unix and loopback TCP sockets: connect, listen, send and receive, each with a deadline.
//
// Every descriptor made here is non-blocking and close-on-exec. No SIGPIPE is ever raised. Any
// thread; one descriptor is used by one thread at a time. libc and libstdc++ only.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

enum class SocketCode {
  kOk,
  kTimeout,   // the deadline passed; what was moved so far is lost to the caller
  kClosed,    // the other side is gone
  kOversize,  // a frame is longer than allowed, or a bounded queue is full
  kForeign,   // a Unix socket, or its folder, belongs to another user
  kFailed,    // everything else; text says what
};

struct [[nodiscard]] SocketStatus {
  SocketCode code = SocketCode::kOk;
  std::string text;  // names the address or path; empty when ok
  [[nodiscard]] bool ok() const { return code == SocketCode::kOk; }
};

// Who is at the other end of a Unix socket, as the kernel says.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};

// Waits until fd is ready for the events of poll(2), or has failed: false at the deadline.
bool WaitReady(int fd, short events, Time deadline);

// A path longer than a socket address holds is refused by name. Listening replaces a socket file
// that nobody listens on any more, and is refused while another process listens. The socket's
// folder and the listening process must belong to this user or to root.
SocketStatus ListenUnix(const std::string& path, UniqueFd* out);
SocketStatus ConnectUnix(const std::string& path, Time deadline, UniqueFd* out);
SocketStatus PeerOf(int fd, PeerCredentials* out);

// Addresses are "127.0.0.1:PORT", numeric; port 0 takes a free one. `bound` gets the address taken.
SocketStatus ListenTcp(const std::string& address, UniqueFd* out, std::string* bound);
SocketStatus ConnectTcp(const std::string& address, Time deadline, UniqueFd* out);

// One connection from a listener; kTimeout when none came before the deadline.
SocketStatus Accept(int listener, Time deadline, UniqueFd* out);

// All bytes, or not ok.
SocketStatus SendAll(int fd, std::string_view bytes, Time deadline);
SocketStatus ReceiveAll(int fd, void* bytes, size_t size, Time deadline);

}  // namespace rewire
