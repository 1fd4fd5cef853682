// Checks the moves of a plan against the elements that each member has and needs, one by one; and
// random changes of small layouts to check. For tests and bench/plan.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reconfig/state/plan/plan.h"
#include "tests/unit/state/topo/any_layout.h"

namespace rewire::state {

struct CheckedMoves {
  std::string error;       // empty: each element has one source that has it
  uint64_t crossings = 0;  // elements between nodes
  // Pairs of an element and a node that needs it and has it not.
  uint64_t least_crossings = 0;
};

// The elements of one tensor that members or nodes have.
class ElementSets {
 public:
  explicit ElementSets(uint64_t elements) : elements_(elements) {}
  // Returns whether the element was new.
  bool Add(uint32_t key, uint64_t element) {
    std::vector<bool>& own = sets_[key];
    own.resize(elements_);
    const bool added = !own[element];
    own[element] = true;
    return added;
  }
  [[nodiscard]] bool Has(uint32_t key, uint64_t element) const {
    const auto own = sets_.find(key);
    return own != sets_.end() && own->second[element];
  }
  bool operator==(const ElementSets&) const = default;

 private:
  uint64_t elements_;
  std::map<uint32_t, std::vector<bool>> sets_;
};

// Returns the numbers of a chunk's elements in the whole tensor.
inline std::vector<uint64_t> ElementsOf(const Chunk& chunk, const std::vector<uint64_t>& shape) {
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < chunk.elements(); ++i) {
    uint64_t rest = i;
    uint64_t number = 0;
    uint64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) {
      number += (chunk.begin[d] + rest % chunk.size(d)) * stride;
      rest /= chunk.size(d);
    }
    numbers.push_back(number);
  }
  return numbers;
}

// moves: all of the tensor.
inline CheckedMoves CheckMoves(const SeatedLayout& from, const SeatedLayout& to, uint32_t tensor,
                               const std::vector<Move>& moves) {
  const std::vector<uint64_t>& shape = from.layout->tensors()[tensor].shape;
  const uint64_t elements = Chunk::Whole(shape).elements();
  std::map<MemberId, uint32_t> node;
  ElementSets had(elements), had_on_node(elements), wanted(elements), got(elements);
  CheckedMoves result;
  for (const SeatedLayout* world : {&from, &to}) {
    for (uint32_t slot = 0; slot < world->seats.size(); ++slot) {
      const Seat& seat = world->seats[slot];
      node[seat.member] = seat.node;
      for (const Piece& piece : world->layout->PiecesOf(tensor, slot)) {
        for (const uint64_t e : ElementsOf(piece.chunk, shape)) {
          (world == &from ? had : wanted).Add(seat.member, e);
          if (world == &from) had_on_node.Add(seat.node, e);
        }
      }
    }
  }
  ElementSets lacking(elements);
  for (const Seat& seat : to.seats) {
    for (uint64_t e = 0; e < elements; ++e) {
      if (wanted.Has(seat.member, e) && !had_on_node.Has(seat.node, e)) {
        result.least_crossings += lacking.Add(seat.node, e) ? 1 : 0;
      }
    }
  }
  std::vector<std::pair<MemberId, uint64_t>> given_on;
  const auto check = [&](bool good, const char* what, const Move& move) {
    if (good || !result.error.empty()) return;
    result.error = absl::StrCat(what, ": tensor ", tensor, " ", Text(move.chunk), " from member ",
                                move.source, " to ", move.target);
  };
  for (const Move& move : moves) {
    const bool crosses = node[move.source] != node[move.target];
    check(!move.relayed || !crosses, "given on to another node", move);
    for (const uint64_t e : ElementsOf(move.chunk, shape)) {
      check(wanted.Has(move.target, e), "not needed", move);
      check(got.Add(move.target, e), "a second source", move);
      result.crossings += crosses ? 1 : 0;
      if (move.relayed) {
        given_on.emplace_back(move.source, e);
        continue;
      }
      check(had.Has(move.source, e), "the source has it not", move);
      check(!had.Has(move.target, e) || move.source == move.target, "the target had it", move);
      check(!crosses || !had_on_node.Has(node[move.target], e), "the node had it", move);
    }
  }
  for (const auto& [member, e] : given_on) {
    if (!got.Has(member, e) && result.error.empty()) {
      result.error = absl::StrCat("given on, and never got: element ", e, " by member ", member);
    }
  }
  if (got != wanted && result.error.empty()) result.error = "something is missing";
  return result;
}

// Two layouts of the same tensors, whose members are on nodes with one to four.
class AnyChange {
 public:
  explicit AnyChange(uint64_t seed) : AnyChange(AnyLayout(seed)) {}
  AnyChange(const AnyChange&) = delete;
  AnyChange& operator=(const AnyChange&) = delete;

 private:
  explicit AnyChange(AnyLayout any)
      : layouts_(any.NewPair()),
        per_node_(static_cast<uint32_t>(any.In(1, 4))),
        from{&layouts_.first, NewSeats(&any, layouts_.first.slots())},
        to{&layouts_.second, NewSeats(&any, layouts_.second.slots())} {}

  std::vector<Seat> NewSeats(AnyLayout* any, uint32_t slots) const {
    std::vector<MemberId> members(slots + any->In(0, 6));
    std::iota(members.begin(), members.end(), 0);
    for (size_t i = members.size(); i > 1; --i) {
      std::swap(members[i - 1], members[any->In(0, i - 1)]);
    }
    std::vector<Seat> seats;
    for (uint32_t slot = 0; slot < slots; ++slot) {
      seats.push_back({members[slot], members[slot] / per_node_});
    }
    return seats;
  }

  const std::pair<ParallelLayout, ParallelLayout> layouts_;
  const uint32_t per_node_;

 public:
  const SeatedLayout from, to;
};

}  // namespace rewire::state
