// The random key that belongs to a job, kept beside its store so that every agent of the job has
// the same one. All keys of epochs are derived from it. Called once, when the agent starts.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "reconfig/auth/key.h"

namespace rewire {

// Reads it, or makes it when the file does not exist. The file must be a regular one of this user
// that nobody else can read or write.
absl::StatusOr<Key> JobKey(const std::string& path);

}  // namespace rewire
