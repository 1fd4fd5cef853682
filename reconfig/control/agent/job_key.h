// The random key of a job. A file beside the store keeps the key, so that every agent of the job
// uses the same key. All keys of epochs are derived from the job's key. For the agent, which calls
// JobKey() once at its start.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "reconfig/auth/key.h"

namespace rewire::control {

// Reads the key, or makes a key when the file does not exist. Fails unless the file is a regular
// file of this user that no other user can read or write.
absl::StatusOr<Key> JobKey(const std::string& path);

}  // namespace rewire::control
