#include "reconfig/state/plan/member_plan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/state/plan/digest.h"
#include "reconfig/state/plan/layout_hash.h"

namespace rewire::state {
namespace {

void Add(const Chunk& chunk, Digest* digest) {
  for (size_t d = 0; d < chunk.dims; ++d) {
    digest->Add(chunk.begin[d]);
    digest->Add(chunk.end[d]);
  }
}

std::optional<uint32_t> SlotOf(MemberId member, const SeatedLayout& world) {
  for (uint32_t slot = 0; slot < world.seats.size(); ++slot) {
    if (world.seats[slot].member == member) return slot;
  }
  return std::nullopt;
}

// Fails unless the chunks are the pieces exactly once.
absl::Status CheckCover(const LogicalTensor& tensor, const std::vector<Piece>& pieces,
                        std::vector<Chunk> chunks) {
  uint64_t wanted = 0;
  uint64_t got = 0;
  for (const Piece& piece : pieces) wanted += piece.chunk.elements();
  std::sort(chunks.begin(), chunks.end());
  for (size_t i = 0; i < chunks.size(); ++i) {
    got += chunks[i].elements();
    const bool inside = std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
      return Intersection(piece.chunk, chunks[i]) == chunks[i];
    });
    bool once = true;
    for (size_t j = i + 1; j < chunks.size() && chunks[j].begin[0] < chunks[i].end[0]; ++j) {
      once = once && Intersection(chunks[i], chunks[j]).empty();
    }
    if (inside && once) continue;
    return absl::InternalError(absl::StrCat("plan: tensor ", tensor.name, " ", Text(chunks[i]),
                                            inside ? " comes twice" : " is in no piece"));
  }
  if (got == wanted) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("plan: tensor ", tensor.name, ": ", got, " of ", wanted, " elements come"));
}

}  // namespace

absl::StatusOr<MemberPlan> PlanFor(MemberId member, const Sources& sources,
                                   const SeatedLayout& to) {
  const std::vector<LogicalTensor>& tensors = to.layout->tensors();
  MemberPlan plan;
  Digest digest;
  for (const SeatedLayout* world : {&sources.from(), &to}) {
    digest.Add(HashOf(*world->layout));
    for (const Seat& seat : world->seats) digest.Add(seat.member);
  }
  std::vector<std::vector<Chunk>> chunks(tensors.size());  // of the moves to the member
  std::unordered_map<MemberId, uint64_t> sent;             // of one tensor, to each member
  uint32_t tensor = 0;
  const absl::Status planned = PlanMoves(sources, to, [&](const Move& move) {
    if (move.tensor != tensor) sent.clear();
    tensor = move.tensor;
    digest.Add(move.tensor);
    Add(move.chunk, &digest);
    digest.Add(uint64_t{move.source} << 32 | move.target);
    digest.Add(static_cast<uint64_t>(move.origin) << 1 | (move.relayed ? 1 : 0));
    uint64_t begin = 0;
    if (move.source != move.target) {
      uint64_t& next = sent[move.target];
      begin = next;
      next += (move.chunk.elements() * tensors[tensor].element_bytes + 7) / 8 * 8;
    }
    if (move.target == member) chunks[tensor].push_back(move.chunk);
    if (move.source == member || move.target == member) plan.moves.push_back({move, begin});
  });
  if (!planned.ok()) return planned;
  const std::optional<uint32_t> slot = SlotOf(member, to);
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    if (!sources.Has(t)) continue;
    const std::vector<Piece> pieces = slot ? to.layout->PiecesOf(t, *slot) : std::vector<Piece>{};
    if (absl::Status s = CheckCover(tensors[t], pieces, std::move(chunks[t])); !s.ok()) return s;
  }
  plan.hash = digest.sum();
  return plan;
}

}  // namespace rewire::state
