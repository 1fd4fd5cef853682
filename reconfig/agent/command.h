// What a control command asks for, from its JSON. Pure; every error names the field.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "reconfig/transition/request.h"

namespace rewire {

// A field that may be absent; wrong when it is there with another type or out of [low, high].
absl::StatusOr<std::optional<uint64_t>> NumberField(const nlohmann::json& command,
                                                    const std::string& name, uint64_t low,
                                                    uint64_t high);
absl::StatusOr<std::string> TextField(const nlohmann::json& command, const std::string& name);

// Whether `name` asks for a change of the world.
bool IsChange(const std::string& name);
absl::StatusOr<ChangeRequest> ParseChange(const std::string& name, const nlohmann::json& command);

}  // namespace rewire
