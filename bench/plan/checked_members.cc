#include "bench/plan/checked_members.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace rewire::bench {
namespace {

using state::Chunk;
using state::Piece;

// Returns whether pieces that share no element have all of the chunk.
bool Have(const std::vector<Piece>& pieces, const Chunk& chunk) {
  uint64_t elements = 0;
  for (const Piece& piece : pieces) elements += Intersection(piece.chunk, chunk).elements();
  return elements == chunk.elements();
}

}  // namespace

CheckedMembers::CheckedMembers(const state::SeatedLayout& from, const state::SeatedLayout& to,
                               const std::vector<MemberId>& targets)
    : from_(from), to_(to) {
  for (uint32_t slot = 0; slot < from.seats.size(); ++slot) {
    old_slot_[from.seats[slot].member] = slot;
  }
  std::map<MemberId, uint32_t> slots;
  for (uint32_t slot = 0; slot < to.seats.size(); ++slot) slots[to.seats[slot].member] = slot;
  for (const MemberId target : targets) new_slot_[target] = slots.at(target);
}

void CheckedMembers::Add(const state::Move& move) {
  for (; tensor_ != move.tensor; ++tensor_) CheckTensor();
  if (new_slot_.contains(move.target)) moves_[move.target].push_back(move);
}

std::string CheckedMembers::Finish() {
  for (; tensor_ < to_.layout->tensors().size(); ++tensor_) CheckTensor();
  return error_;
}

void CheckedMembers::CheckTensor() {
  for (const auto& [target, slot] : new_slot_) {
    if (!error_.empty()) break;
    const std::vector<Piece> pieces = to_.layout->PiecesOf(tensor_, slot);
    uint64_t wanted = 0;
    for (const Piece& piece : pieces) wanted += piece.chunk.elements();
    std::vector<state::Move>& moves = moves_[target];
    std::sort(moves.begin(), moves.end(),
              [](const auto& a, const auto& b) { return a.chunk < b.chunk; });
    uint64_t got = 0;
    for (size_t i = 0; i < moves.size(); ++i) {
      const state::Move& move = moves[i];
      got += move.chunk.elements();
      bool good = Have(pieces, move.chunk);
      if (!move.relayed) {
        const auto old = old_slot_.find(move.source);
        good = good && old != old_slot_.end() &&
               Have(from_.layout->PiecesOf(tensor_, old->second), move.chunk);
      }
      for (size_t j = i + 1; j < moves.size() && moves[j].chunk.begin[0] < move.chunk.end[0]; ++j) {
        good = good && Intersection(move.chunk, moves[j].chunk).empty();
      }
      if (!good) error_ = absl::StrCat("tensor ", tensor_, " ", Text(move.chunk), " to ", target);
    }
    if (got != wanted) {
      error_ = absl::StrCat("tensor ", tensor_, ": member ", target, " gets ", got, " of ", wanted);
    }
  }
  moves_.clear();
}

}  // namespace rewire::bench
