// The control protocol: what commands and the launcher say to an agent, on the same socket as
// members.
//
//   frame = u32 length | u16 version | u16 0xC0DE | JSON object
//
// A command asks {"command": NAME, ...} and is answered by any number of {"progress": TEXT, ...}
// and one last {"ok": true, ...} or {"ok": false, "error": TEXT}. The launcher asks {"command":
// "launch"} and from then on both sides send events. docs/control.md lists them. Pure functions;
// any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace rewire {

// The type field of a control frame, in the place where a member's message has its own.
inline constexpr uint16_t kControlType = 0xC0DE;

// The whole frame, length included.
std::string EncodeControl(const nlohmann::json& object);
// Whether a whole frame is a control frame, of any version.
bool IsControl(std::string_view frame);
// The object of a control frame; what is wrong with it otherwise.
absl::StatusOr<nlohmann::json> DecodeControl(std::string_view frame);

// {"ok": false, "error": text}
nlohmann::json ControlError(std::string_view text);

}  // namespace rewire
