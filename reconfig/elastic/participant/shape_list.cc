// Encodes and decodes the list of registered tensors; see shape_list.h.
#include "reconfig/elastic/participant/shape_list.h"

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"

namespace rewire::elastic {
namespace {

constexpr size_t kLeastShapeBytes = 4 + 8 + 4 + 1 + 1;  // with an empty name

}  // namespace

std::string EncodeShapes(std::span<const state::TensorShape> shapes) {
  ByteWriter out;
  out.Put(static_cast<uint32_t>(shapes.size()));
  for (const state::TensorShape& s : shapes) {
    out.PutString(s.name);
    out.Put(s.elements);
    out.Put(s.element_bytes);
    out.Put(s.division);
    out.Put(s.change);
  }
  return out.Take();
}

absl::StatusOr<std::vector<state::TensorShape>> DecodeShapes(std::string_view bytes) {
  std::vector<state::TensorShape> shapes;
  ByteReader in(bytes);
  for (uint32_t left = in.GetCount(kLeastShapeBytes); left > 0 && in.ok(); --left) {
    state::TensorShape s;
    s.name = std::string(in.GetString());
    s.elements = in.Get<uint64_t>();
    s.element_bytes = in.Get<uint32_t>();
    s.division = in.Get<state::Division>();
    s.change = in.Get<state::Change>();
    if (s.division > state::Division::kByLayout || s.change > state::Change::kTransient) {
      return absl::InvalidArgumentError(absl::StrCat(
          "decode registered tensors: tensor=", shapes.size(), ": unknown division or change"));
    }
    shapes.push_back(std::move(s));
  }
  if (!in.Finished()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "decode registered tensors: bytes=", bytes.size(), ": the count does not fit the length"));
  }
  return shapes;
}

}  // namespace rewire::elastic
