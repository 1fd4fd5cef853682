// The control protocol: messages of commands and the launcher to an agent, on the same socket as
// members.
//
//   frame = u32 length | u16 version | u16 0xC0DE | JSON object
//
// A command sends {"command": NAME, ...}. The answers are any number of {"progress": TEXT, ...} and
// a last {"ok": true, ...} or {"ok": false, "error": TEXT}. The launcher sends {"command":
// "launch"}; from then on both sides send events. docs/control.md lists them. Every error of a
// command's field names the field. Pure and thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reconfig/elastic/leader/request.h"

namespace rewire::control {

// The type field of a control frame, at the offset of a member message's type.
inline constexpr uint16_t kControlType = 0xC0DE;

// Returns the whole frame, length included.
std::string EncodeControl(const nlohmann::json& object);
// Returns whether a whole frame is a control frame of any version.
bool IsControl(std::string_view frame);
// Returns the object of a control frame, or an error that names the fault.
absl::StatusOr<nlohmann::json> DecodeControl(std::string_view frame);

// Returns {"ok": false, "error": text}.
nlohmann::json ControlError(std::string_view text);

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
