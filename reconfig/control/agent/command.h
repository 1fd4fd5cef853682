// Parses control commands from JSON. Pure; every error names the field.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "reconfig/elastic/leader/request.h"

namespace rewire::control {

// Returns the number of a field, or nullopt without the field. Fails for another type or a value
// outside [low, high].
absl::StatusOr<std::optional<uint64_t>> NumberField(const nlohmann::json& command,
                                                    const std::string& name, uint64_t low,
                                                    uint64_t high);
absl::StatusOr<std::string> TextField(const nlohmann::json& command, const std::string& name);

// Returns whether the command `name` changes the world.
bool IsChange(const std::string& name);
absl::StatusOr<elastic::ChangeRequest> ParseChange(const std::string& name,
                                                   const nlohmann::json& command);

}  // namespace rewire::control
