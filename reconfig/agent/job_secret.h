// The random number that belongs to a job, kept beside its store so that every agent of the job has
// the same one. Called once, when the agent starts.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace rewire {

// Reads it, or makes it when the file does not exist. Readable by its owner alone.
absl::StatusOr<uint64_t> JobSecret(const std::string& path);

}  // namespace rewire
