// The frames of the control protocol and the fields of its commands; see control_messages.h. Pure.
#include "reconfig/control/agent/control_messages.h"

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/elastic/protocol/codec.h"

namespace rewire::control {
namespace {

constexpr size_t kHeader = 8;

using nlohmann::json;

absl::Status Wrong(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("field '", name, "' must be ", what));
}

absl::StatusOr<std::vector<MemberId>> Members(const json& command) {
  const auto found = command.find("members");
  if (found == command.end() || !found->is_array() || found->empty()) {
    return Wrong("members", "a list of at least one member id");
  }
  std::vector<MemberId> out;
  for (const json& m : *found) {
    if (!m.is_number_unsigned() || m.get<uint64_t>() > UINT32_MAX) {
      return Wrong("members", "a list of member ids, whole numbers from 0");
    }
    out.push_back(m.get<MemberId>());
  }
  return out;
}

}  // namespace

std::string EncodeControl(const nlohmann::json& object) {
  // Text from outside (a program's name, a reason) may not be UTF-8 and must not end the agent.
  const std::string text = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  ByteWriter w;
  w.Put(static_cast<uint32_t>(text.size() + 4));
  w.Put(elastic::kProtocolVersion);
  w.Put(kControlType);
  w.PutRaw(text);
  return w.Take();
}

bool IsControl(std::string_view frame) {
  ByteReader r(frame);
  r.Get<uint32_t>();
  r.Get<uint16_t>();
  return r.Get<uint16_t>() == kControlType && r.ok();
}

absl::StatusOr<nlohmann::json> DecodeControl(std::string_view frame) {
  ByteReader r(frame);
  r.Get<uint32_t>();
  const auto version = r.Get<uint16_t>();
  r.Get<uint16_t>();
  if (!r.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("malformed control frame: bytes=", frame.size(), ": too short"));
  if (version != elastic::kProtocolVersion) {
    return absl::InvalidArgumentError(absl::StrCat("control frame: protocol version=", version,
                                                   ": must be ", elastic::kProtocolVersion));
  }
  // Refuse a depth that exceeds the parser's stack before parsing.
  int depth = 0;
  int deepest = 0;
  for (const char c : frame.substr(kHeader)) {
    depth += c == '[' || c == '{' ? 1 : 0;
    depth -= c == ']' || c == '}' ? 1 : 0;
    deepest = std::max(deepest, depth);
  }
  nlohmann::json object;
  if (deepest <= 64) object = nlohmann::json::parse(frame.substr(kHeader), nullptr, false);
  if (!object.is_object())
    return absl::InvalidArgumentError("malformed control frame: not a JSON object");
  return object;
}

nlohmann::json ControlError(std::string_view text) { return {{"ok", false}, {"error", text}}; }

absl::StatusOr<std::optional<uint64_t>> NumberField(const json& command, const std::string& name,
                                                    uint64_t low, uint64_t high) {
  const auto found = command.find(name);
  if (found == command.end() || found->is_null()) return std::nullopt;
  if (!found->is_number_unsigned() || found->get<uint64_t>() < low ||
      found->get<uint64_t>() > high) {
    return Wrong(name, absl::StrCat("a whole number from ", low, " to ", high));
  }
  return found->get<uint64_t>();
}

absl::StatusOr<std::string> TextField(const json& command, const std::string& name) {
  const auto found = command.find(name);
  if (found == command.end() || found->is_null()) return std::string();
  if (!found->is_string() || found->get_ref<const std::string&>().size() > 1024) {
    return Wrong(name, "a text of at most 1024 bytes");
  }
  return found->get<std::string>();
}

bool IsChange(const std::string& name) {
  return name == "resize" || name == "drain" || name == "replace" || name == "rebuild";
}

absl::StatusOr<elastic::ChangeRequest> ParseChange(const std::string& name, const json& command) {
  elastic::ChangeRequest out;
  REWIRE_ASSIGN_OR_RETURN(out.reason, TextField(command, "reason"));
  if (name == "resize") {
    out.kind = elastic::RequestKind::kResize;
    REWIRE_ASSIGN_OR_RETURN(const auto size, NumberField(command, "size", 0, UINT32_MAX));
    if (!size) return Wrong("size", "a number of members");
    out.size = static_cast<uint32_t>(*size);
    return out;
  }
  if (name == "rebuild") {
    out.kind = elastic::RequestKind::kRebuild;
    return out;
  }
  out.kind = name == "drain" ? elastic::RequestKind::kDrain : elastic::RequestKind::kReplace;
  REWIRE_ASSIGN_OR_RETURN(out.members, Members(command));
  REWIRE_ASSIGN_OR_RETURN(const auto within, NumberField(command, "within_ms", 1, 86400000));
  if (within) out.within = milliseconds(*within);
  if (out.kind == elastic::RequestKind::kReplace && out.members.size() != 1) {
    return Wrong("members", "one member");
  }
  return out;
}

}  // namespace rewire::control
