// The connecting side of one link that is being made: connects every stream to the listener, proves
// the listener's key and the job's key on each, and waits for the listener's welcome. A stream that
// a listener under load drops before its challenge is connected again. Thread-compatible: Links
// calls the object under the mutex of Links. No call blocks.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net_plugin/socket/link.h"
#include "net_plugin/socket/wire_format.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::net {

class LinkAttempt {
 public:
  // Makes a non-blocking TCP socket of this address family.
  using MakeSocket = std::function<absl::StatusOr<UniqueFd>(int family)>;
  struct Route {
    sockaddr_storage local{};      // the address to connect from; port 0
    ListenAddress to;              // the listener
    Key key;                       // the listener's link key
    uint64_t incarnation = 0;      // of this process
    Duration redial = seconds(5);  // limit of connecting again, since Begin()
  };

  LinkAttempt(const Route& route, MakeSocket make_socket);

  // Starts to connect this number of streams.
  absl::Status Begin(int streams);
  // Goes on as far as possible now. True: the link is complete. PermissionDenied: the peer does not
  // have the keys. FailedPrecondition: the peer has another version. Any error ends the attempt.
  absl::StatusOr<bool> Advance();
  // The time of Begin().
  [[nodiscard]] Time begun() const { return begun_; }
  // Returns the complete link.
  std::unique_ptr<Link> TakeLink();

 private:
  // One stream on its way to the listener.
  struct Dial {
    UniqueFd fd;
    std::string hello;
    std::string out;  // not written yet
    std::string in;   // the part of the challenge that has arrived
    bool proved = false;
    Time again{};  // the time of the next dial, when `fd` is not valid
  };

  absl::Status Start(Dial* dial);
  absl::Status AdvanceDial(Dial* dial);
  // Checks the listener's proof and prepares this side's proof.
  absl::Status Answer(Dial* dial);
  // Schedules another dial for a connection that ended before the peer's challenge.
  absl::Status Again(Dial* dial, int error);

  const Route route_;
  const MakeSocket make_socket_;
  const std::string where_;  // the listener's address, for errors
  Time begun_;
  std::unique_ptr<Link> link_;
  std::vector<Dial> dials_;  // one for each stream
  std::string welcome_;      // the part of the welcome that has arrived
};

}  // namespace rewire::net
