// See master_port.h. Thread-safe.
#include "reconfig/control/launcher/master_port.h"

#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "reconfig/base/socket.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::control {

absl::StatusOr<uint16_t> ChooseMasterPort(uint16_t first, uint16_t last) {
  constexpr int kTries = 64;
  std::random_device random;
  std::uniform_int_distribution<int> ports(first, last);
  for (int i = 0; i < kTries; ++i) {
    const int port = ports(random);
    UniqueFd listener;
    std::string bound;
    if (ListenTcp(absl::StrCat("127.0.0.1:", port), &listener, &bound).ok()) {
      return static_cast<uint16_t>(port);
    }
  }
  UniqueFd listener;
  std::string bound;
  if (const SocketStatus s = ListenTcp("127.0.0.1:0", &listener, &bound); !s.ok()) {
    return absl::UnavailableError(absl::StrCat("MASTER_PORT: ", s.text));
  }
  uint32_t port = 0;
  if (!absl::SimpleAtoi(bound.substr(bound.rfind(':') + 1), &port)) {
    return absl::InternalError(absl::StrCat("MASTER_PORT: no port in ", bound));
  }
  return static_cast<uint16_t>(port);
}

}  // namespace rewire::control
