// Describes how one logical tensor is divided over the slots of a world: the elements of each slot.
//
// Pure and thread-safe; used by plan, stream, snapshot and participant. A box is an interval of the
// flattened tensor, which is enough for data parallelism and ZeRO.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace rewire::state {

// Elements [begin, end).
struct Box {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool operator==(const Box&) const = default;
  [[nodiscard]] uint64_t size() const { return end > begin ? end - begin : 0; }
  [[nodiscard]] bool empty() const { return end <= begin; }
  [[nodiscard]] bool Contains(const Box& other) const {
    return other.empty() || (begin <= other.begin && other.end <= end);
  }
};

enum class Division : uint8_t {
  kReplicated = 0,  // every slot holds all elements
  kSharded = 1,     // slot s of n holds ShardOf(elements, n, s)
};

enum class Change : uint8_t {
  kConstant = 0,   // does not change between two updates
  kVolatile = 1,   // may change at any time
  kTransient = 2,  // may change at any time, and is unused after the update (gradients)
};

struct TensorShape {
  std::string name;
  uint64_t elements = 0;
  uint32_t element_bytes = 1;
  Division division = Division::kReplicated;
  Change change = Change::kConstant;
  bool operator==(const TensorShape&) const = default;
};

// Returns one of the equal chunks of ceil(elements / slots); the last are shorter or empty, as in
// rewireShard().
inline Box ShardOf(uint64_t elements, uint32_t slots, uint32_t slot) {
  if (slots == 0 || slot >= slots) return {};
  const uint64_t chunk = elements / slots + (elements % slots != 0 ? 1 : 0);
  // chunk * slot can overflow only if slot 1 begins past the end.
  const uint64_t begin = chunk != 0 && slot > elements / chunk ? elements : chunk * slot;
  return {std::min(begin, elements), begin + std::min(chunk, elements - std::min(begin, elements))};
}

// Returns the elements of the tensor that `slot` of `slots` holds.
inline Box PartOf(const TensorShape& tensor, uint32_t slots, uint32_t slot) {
  if (slot >= slots) return {};
  if (tensor.division == Division::kReplicated) return {0, tensor.elements};
  return ShardOf(tensor.elements, slots, slot);
}

// The names of tensors by their number in a plan, for errors that an operator reads.
using TensorNames = std::vector<std::string>;

// Returns "tensor NAME", or "tensor number N" if the name is not known.
inline std::string TensorText(const TensorNames& names, uint32_t tensor) {
  if (tensor < names.size()) return "tensor " + names[tensor];
  return "tensor number " + std::to_string(tensor);
}

}  // namespace rewire::state
