// Converts a failed socket call into a status. Thread-safe.
#pragma once

#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rewire::net {

// A fault of the peer or of the network.
inline absl::Status PeerFault(const std::string& what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(error)));
}

// A fault of this machine, not of the peer.
inline absl::Status LocalFault(const std::string& what, int error) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", strerror(error)));
}

}  // namespace rewire::net
