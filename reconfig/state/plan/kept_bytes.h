// How many bytes each member would keep if it got a slot of a new layout: the input of an
// assignment of slots. Pure; immutable and thread-safe.
//
// With n members and n slots a table would have n * n numbers. Most of them are sums of the same
// few: members with equal parts of most tensors keep equally much there. So members and slots have
// types, and only the slots where a member keeps more, as shards of ZeRO, are listed one by one.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "reconfig/state/topo/parallel_layout.h"

namespace rewire::state {

class KeptBytes {
 public:
  // from, to: layouts of the same tensors (CheckSameTensors()).
  KeptBytes(const ParallelLayout& from, const ParallelLayout& to);

  struct Entry {
    uint32_t key = 0;  // a type or a slot
    uint64_t bytes = 0;
    bool operator==(const Entry&) const = default;
  };

  // The bytes that the holder of slot `old` of the old layout keeps in slot `next` of the new one.
  [[nodiscard]] uint64_t Of(uint32_t old, uint32_t next) const;

  // If BySlot(old) has `next`, its bytes are Of(old, next). Otherwise those of TypeOf(next) in
  // ByType(old) are, and 0 if that is not listed either. Both lists ascend.
  [[nodiscard]] std::span<const Entry> ByType(uint32_t old) const { return by_type_[type_[old]]; }
  [[nodiscard]] std::span<const Entry> BySlot(uint32_t old) const { return by_slot_[old]; }
  [[nodiscard]] uint32_t TypeOf(uint32_t next) const { return next_type_[next]; }
  [[nodiscard]] uint32_t types() const { return next_types_; }

 private:
  struct Division;

  void AddTypes(const std::vector<const Division*>& divisions);

  std::vector<uint32_t> type_;       // by slot of the old layout
  std::vector<uint32_t> next_type_;  // by slot of the new one
  uint32_t next_types_ = 1;
  std::vector<std::vector<Entry>> by_type_;  // by type of the old layout
  std::vector<std::vector<Entry>> by_slot_;  // by slot of the old layout
};

}  // namespace rewire::state
