#include "reconfig/state/plan/seat_assignment.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "reconfig/base/check.h"
#include "reconfig/state/plan/kept_bytes.h"

namespace rewire::state {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;
// Up to this number of members the best assignment is wanted.
constexpr size_t kMaxExact = 64;
constexpr int64_t kMaxSum = int64_t{1} << 60;  // of values and prices

// One auction of all slots. Values and prices are bytes times scale().
class Auction {
 public:
  // old_slot: by bidder; kNobody: the bidder has no state.
  Auction(const KeptBytes& kept, std::vector<uint32_t> old_slot)
      : kept_(kept),
        old_slot_(std::move(old_slot)),
        prices_(old_slot_.size()),
        owner_(old_slot_.size(), kNobody),
        cheapest_(kept.types()) {
    for (uint32_t slot = 0; slot < prices_.size(); ++slot) {
      all_.emplace(0, slot);
      cheapest_[kept_.TypeOf(slot)].emplace(0, slot);
    }
    for (const uint32_t old : old_slot_) {
      if (old == kNobody) continue;
      for (const auto& entry : kept_.ByType(old)) most_ = std::max(most_, Bytes(entry));
      for (const auto& entry : kept_.BySlot(old)) most_ = std::max(most_, Bytes(entry));
    }
    // Prices that are exact to one part in n + 1 of a byte give the best assignment. Without them
    // it is wrong by at most n bytes.
    const auto exact = static_cast<int64_t>(prices_.size() + 1);
    if (most_ < kMaxSum / exact / exact) scale_ = exact;
  }

  // Runs until the result is good enough.
  void Run() {
    for (int64_t step = std::max<int64_t>(1, most_ * scale_ / 8);;) {
      SellAll(step);
      const uint64_t kept = KeptNow();
      const uint64_t bound = Bound();
      REWIRE_CHECK(kept <= bound);
      const uint64_t enough = prices_.size() <= kMaxExact ? bound : bound - bound / 1000;
      if (kept >= enough || step == 1) return;
      step = std::max<int64_t>(1, step / 5);
    }
  }

  // Gives members the slot with the number of their old one, where that costs no byte: ranks that
  // change without a need surprise programs, as when rank 0 writes the logs.
  void KeepNumbers() {
    std::vector<uint32_t> slot_of(owner_.size());
    for (uint32_t slot = 0; slot < owner_.size(); ++slot) slot_of[owner_[slot]] = slot;
    for (uint32_t bidder = 0; bidder < owner_.size(); ++bidder) {
      const uint32_t wanted = old_slot_[bidder];
      if (wanted >= owner_.size()) continue;
      const uint32_t has = slot_of[bidder];
      const uint32_t other = owner_[wanted];
      if (KeptIn(wanted, bidder) + KeptIn(has, other) < KeptIn(has, bidder) + KeptIn(wanted, other))
        continue;
      std::swap(owner_[wanted], owner_[has]);
      std::swap(slot_of[bidder], slot_of[other]);
    }
  }

  [[nodiscard]] uint32_t owner(uint32_t slot) const { return owner_[slot]; }

  [[nodiscard]] uint64_t KeptNow() const {
    uint64_t bytes = 0;
    for (uint32_t slot = 0; slot < owner_.size(); ++slot) bytes += KeptIn(slot, owner_[slot]);
    return bytes;
  }

  // Returns the dual value: what everybody would gain at these prices, and the prices.
  [[nodiscard]] uint64_t Bound() const {
    int64_t sum = 0;
    for (uint32_t slot = 0; slot < prices_.size(); ++slot) {
      sum += prices_[slot] + Choose(slot).value;  // of the bidder with the slot's number
    }
    return static_cast<uint64_t>(sum / scale_);
  }

 private:
  struct Choice {
    uint32_t slot = kNobody;
    int64_t value = 0;   // of the best slot, less its price
    int64_t second = 0;  // of the best other slot
    void Consider(uint32_t other, int64_t other_value) {
      if (slot == kNobody) {
        *this = {other, other_value, INT64_MIN};
      } else if (other == slot) {
        value = std::max(value, other_value);
      } else if (other_value > value) {
        *this = {other, other_value, value};
      } else {
        second = std::max(second, other_value);
      }
    }
  };
  using Cheapest = std::set<std::pair<int64_t, uint32_t>>;  // price and slot

  [[nodiscard]] uint64_t KeptIn(uint32_t slot, uint32_t bidder) const {
    return old_slot_[bidder] == kNobody ? 0 : kept_.Of(old_slot_[bidder], slot);
  }

  static int64_t Bytes(const KeptBytes::Entry& entry) { return static_cast<int64_t>(entry.bytes); }

  static void ConsiderCheapest(const Cheapest& slots, int64_t value, Choice* choice) {
    auto at = slots.begin();
    for (int i = 0; i < 2 && at != slots.end(); ++i, ++at) {
      choice->Consider(at->second, value - at->first);
    }
  }

  [[nodiscard]] Choice Choose(uint32_t bidder) const {
    Choice choice;
    const uint32_t old = old_slot_[bidder];
    if (old != kNobody) {
      for (const auto& entry : kept_.ByType(old)) {
        ConsiderCheapest(cheapest_[entry.key], Bytes(entry) * scale_, &choice);
      }
      for (const auto& entry : kept_.BySlot(old)) {
        choice.Consider(entry.key, Bytes(entry) * scale_ - prices_[entry.key]);
      }
    }
    ConsiderCheapest(all_, 0, &choice);
    return choice;
  }

  void SellAll(int64_t step) {
    std::fill(owner_.begin(), owner_.end(), kNobody);
    std::vector<uint32_t> bidders;
    for (auto bidder = static_cast<uint32_t>(owner_.size()); bidder-- > 0;) {
      bidders.push_back(bidder);
    }
    while (!bidders.empty()) {
      const uint32_t bidder = bidders.back();
      bidders.pop_back();
      const Choice choice = Choose(bidder);
      const int64_t more = choice.second == INT64_MIN ? 0 : choice.value - choice.second;
      Raise(choice.slot, more + step);
      if (owner_[choice.slot] != kNobody) bidders.push_back(owner_[choice.slot]);
      owner_[choice.slot] = bidder;
    }
  }

  void Raise(uint32_t slot, int64_t by) {
    for (Cheapest* slots : {&all_, &cheapest_[kept_.TypeOf(slot)]}) {
      auto node = slots->extract({prices_[slot], slot});
      node.value().first += by;
      slots->insert(std::move(node));
    }
    prices_[slot] += by;
  }

  const KeptBytes& kept_;
  const std::vector<uint32_t> old_slot_;
  std::vector<int64_t> prices_;  // by slot
  std::vector<uint32_t> owner_;  // the bidder, by slot
  Cheapest all_;
  std::vector<Cheapest> cheapest_;  // by type
  int64_t most_ = 0;
  int64_t scale_ = 1;
};

}  // namespace

SeatAssignment AssignSeats(const SeatedLayout& from, const ParallelLayout& to,
                           std::span<const Seat> members) {
  REWIRE_CHECK(members.size() == to.slots());
  std::map<MemberId, uint32_t> slot_of;
  for (uint32_t slot = 0; slot < from.seats.size(); ++slot) {
    slot_of[from.seats[slot].member] = slot;
  }
  std::vector<uint32_t> old_slot;
  for (const Seat& seat : members) {
    const auto known = slot_of.find(seat.member);
    old_slot.push_back(known == slot_of.end() ? kNobody : known->second);
  }
  const KeptBytes kept(*from.layout, to);
  Auction auction(kept, std::move(old_slot));
  auction.Run();
  auction.KeepNumbers();
  SeatAssignment result{{}, auction.KeptNow(), auction.Bound()};
  for (uint32_t slot = 0; slot < to.slots(); ++slot) {
    result.seats.push_back(members[auction.owner(slot)]);
  }
  return result;
}

}  // namespace rewire::state
