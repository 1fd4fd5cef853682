#include "reconfig/control/agent/control.h"

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"
#include "reconfig/elastic/protocol/codec.h"

namespace rewire::control {
namespace {

constexpr size_t kHeader = 8;

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

}  // namespace rewire::control
