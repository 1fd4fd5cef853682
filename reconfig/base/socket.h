// Unix and loopback TCP sockets: connect, listen, send and receive, each with a deadline.
//
// Every descriptor made here is non-blocking and close-on-exec. No SIGPIPE is ever raised.
// Thread-safe, but only one thread at a time may use a descriptor. Needs libc and libstdc++ only.
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
  kTimeout,   // the deadline passed; bytes moved so far are lost to the caller
  kClosed,    // the peer has closed the connection
  kOversize,  // a frame is longer than allowed, or a bounded queue is full
  kForeign,   // a Unix socket, or its folder, belongs to another user
  kFailed,    // any other error; see text
};

struct [[nodiscard]] SocketStatus {
  SocketCode code = SocketCode::kOk;
  std::string text;  // names the address or path; empty when ok
  [[nodiscard]] bool ok() const { return code == SocketCode::kOk; }
};

// The process at the other end of a Unix socket, as the kernel reports it.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};

// Waits until fd is ready for the events of poll(2), or has failed. Returns false at the deadline.
bool WaitReady(int fd, short events, Time deadline);

// Both functions reject a path that is too long for a socket address. Listening replaces a socket
// file without a listener, and fails while another process listens. The socket's folder and the
// listening process must belong to this user or to root.
SocketStatus ListenUnix(const std::string& path, UniqueFd* out);
SocketStatus ConnectUnix(const std::string& path, Time deadline, UniqueFd* out);
SocketStatus PeerOf(int fd, PeerCredentials* out);

// Addresses are numeric: "127.0.0.1:PORT"; port 0: any free port. `bound` gets the actual address.
SocketStatus ListenTcp(const std::string& address, UniqueFd* out, std::string* bound);
SocketStatus ConnectTcp(const std::string& address, Time deadline, UniqueFd* out);

// A listener whose queue is full drops the request of a new connection, and the kernel repeats the
// request only after 1, 3 and 7 s. An attempt without an answer therefore ends after this time, and
// the caller begins a new attempt. The time exceeds any round trip between the hosts of a job.
inline constexpr Duration kConnectAttempt = milliseconds(250);

// Takes one connection from a listener; returns kTimeout if none came before the deadline.
SocketStatus Accept(int listener, Time deadline, UniqueFd* out);

// Both functions transfer all bytes, or return an error.
SocketStatus SendAll(int fd, std::string_view bytes, Time deadline);
SocketStatus ReceiveAll(int fd, void* bytes, size_t size, Time deadline);

}  // namespace rewire
