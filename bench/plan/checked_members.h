// Checks the moves to some members of a large plan: each element once, from a member that has it.
// Owned by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reconfig/state/plan/plan.h"

namespace rewire::bench {

class CheckedMembers {
 public:
  // from, to: outlive this. targets: members of `to`.
  CheckedMembers(const state::SeatedLayout& from, const state::SeatedLayout& to,
                 const std::vector<MemberId>& targets);

  // Takes each move of the plan, tensor by tensor.
  void Add(const state::Move& move);
  // Checks the last tensor. Returns an error, or "".
  std::string Finish();

 private:
  void CheckTensor();

  const state::SeatedLayout& from_;
  const state::SeatedLayout& to_;
  std::map<MemberId, uint32_t> old_slot_;
  std::map<MemberId, uint32_t> new_slot_;  // of the targets
  std::map<MemberId, std::vector<state::Move>> moves_;
  uint32_t tensor_ = 0;
  std::string error_;
};

}  // namespace rewire::bench
