#include "reconfig/control/agent/command.h"

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"

namespace rewire::control {
namespace {

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
