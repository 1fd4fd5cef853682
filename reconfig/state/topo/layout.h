// A tensor as a program has registered it, and the elements that a slot has of it.
//
// Pure and thread-safe; used by plan, stream, snapshot and participant.
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
  kByLayout = 2,    // the layout that the program gives for each world says it (ProgramLayout)
};

enum class Change : uint8_t {
  kConstant = 0,   // does not change between two updates
  kVolatile = 1,   // may change at any time
  kTransient = 2,  // may change at any time, and is unused after the update (gradients)
};

struct TensorShape {
  std::string name;
  uint64_t elements = 0;  // of the whole tensor
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

// The names of tensors by their number in a plan, for errors that an operator reads.
using TensorNames = std::vector<std::string>;

// Returns "tensor NAME", or "tensor number N" if the name is not known.
inline std::string TensorText(const TensorNames& names, uint32_t tensor) {
  if (tensor < names.size()) return "tensor " + names[tensor];
  return "tensor number " + std::to_string(tensor);
}

}  // namespace rewire::state
