#include "reconfig/moe/exec/shape.h"

#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "reconfig/base/hash.h"
#include "reconfig/base/status_macros.h"

namespace rewire::moe {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 40;
// The version of the page and of the planning; processes of different versions refuse to balance.
constexpr uint64_t kVersion = 3;

absl::Status InRange(std::string_view name, uint64_t value, uint64_t min, uint64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(name), "=", value, ": must be ", min, " to ", max));
}

}  // namespace

absl::Status Check(const Shape& shape) {
  REWIRE_RETURN_IF_ERROR(InRange("experts", shape.experts, 1, kMaxExperts));
  REWIRE_RETURN_IF_ERROR(InRange("weight_bytes", shape.weight_bytes, 1, kMaxBytes));
  REWIRE_RETURN_IF_ERROR(InRange("grad_bytes", shape.grad_bytes, 0, kMaxBytes));
  REWIRE_RETURN_IF_ERROR(InRange("slots", shape.slots, 1, kMaxSlots));
  REWIRE_RETURN_IF_ERROR(InRange("rows", shape.rows, 1, uint64_t{1} << 31));
  REWIRE_RETURN_IF_ERROR(InRange("dynamic", shape.dynamic, 1, shape.experts));
  REWIRE_RETURN_IF_ERROR(InRange("gate_percent", shape.gate_percent, 100, UINT32_MAX));
  return InRange("token_bytes", shape.token_bytes, 1, kMaxBytes / shape.rows);
}

absl::Status Check(const NodeGroup& group) {
  REWIRE_RETURN_IF_ERROR(InRange("ranks", group.ranks, 2, kMaxRanks));
  REWIRE_RETURN_IF_ERROR(InRange("rank", group.rank, 0, group.ranks - 1));
  REWIRE_RETURN_IF_ERROR(InRange("length of the group's name", group.name.size(), 1, 128));
  for (const char c : group.name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_') continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "group name \"", group.name, "\": must have only letters, digits, '-' and '_'"));
  }
  return absl::OkStatus();
}

uint64_t Fingerprint(const Shape& shape, uint32_t ranks) {
  uint64_t hash = kVersion;
  for (const uint64_t value :
       {uint64_t{ranks}, uint64_t{shape.experts}, shape.weight_bytes, shape.grad_bytes,
        shape.token_bytes, uint64_t{shape.slots}, uint64_t{shape.rows}, uint64_t{shape.dynamic},
        uint64_t{shape.gate_percent}, uint64_t{shape.least}}) {
    hash = MixWord(hash, value);
  }
  return hash;
}

}  // namespace rewire::moe
