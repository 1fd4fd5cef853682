// Chooses the version to restore; see restore_choice.h. Pure; thread-safe.
#include "reconfig/elastic/leader/restore_choice.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rewire::elastic {
namespace {

// The reasons for a report without live_whole.
constexpr char kNotWhole[] =
    "was in the middle of an update, or has volatile state without a copy (the first copy exists "
    "after the job's first update)";

bool Has(const std::vector<uint64_t>& versions, uint64_t version) {
  return std::find(versions.begin(), versions.end(), version) != versions.end();
}

// The state that the reporting members can supply.
class Stock {
 public:
  Stock(const World& from, const std::map<MemberId, AtBoundary>& reports)
      : from_(from), reports_(reports), needs_(reports.begin()->second.needs) {}

  [[nodiscard]] std::set<uint64_t> Versions() const {
    std::set<uint64_t> versions;
    for (const auto& [member, r] : reports_) {
      if (r.live_whole) versions.insert(r.live_version);
      versions.insert(r.own_snapshots.begin(), r.own_snapshots.end());
      versions.insert(r.buddy_snapshots.begin(), r.buddy_snapshots.end());
    }
    return versions;
  }

  [[nodiscard]] RestoreSources Sources(uint64_t version) const {
    RestoreSources sources;
    for (const auto& [member, r] : reports_) {
      if (r.live_whole && r.live_version == version) sources.live.push_back(member);
      if (Has(r.own_snapshots, version)) sources.own.push_back(member);
      if (Has(r.buddy_snapshots, version)) sources.buddy.push_back(member);
    }
    return sources;
  }

  // Returns the first part that no member can supply at a version; empty: all parts are available.
  [[nodiscard]] std::string Missing(uint64_t version) const {
    for (const StateNeed& need : needs_) {
      const auto live = [&](uint32_t slot) {
        const AtBoundary* const r = ReportOf(slot);
        return r != nullptr && r->live_whole && r->live_version == version;
      };
      if (std::any_of(need.live.begin(), need.live.end(), live)) continue;
      // A member with live_whole also has its own copies of volatile state.
      const auto own = [&](uint32_t slot) { return OwnerHas(slot, version); };
      if (std::any_of(need.whole.begin(), need.whole.end(), own)) continue;
      const auto lost = std::find_if(need.pieces.begin(), need.pieces.end(), [&](uint32_t slot) {
        return !OwnerHas(slot, version) && !BuddyHas(slot, version);
      });
      if (!need.pieces.empty() && lost == need.pieces.end()) continue;
      if (Alone(need)) return NameOf(need.live.front());
      const std::string shared =
          absl::StrCat(need.live.size() == from_.members.size()
                           ? "the replicated state"
                           : "the state that slots share with " + NameOf(need.live.front()));
      if (!need.whole.empty()) return shared + " that is volatile";
      return need.pieces.empty() ? shared : absl::StrCat(shared, ": the piece of ", NameOf(*lost));
    }
    return "";
  }

  [[nodiscard]] std::string NameOf(uint32_t slot) const {
    return absl::StrCat("slot ", slot, " (member ", from_.members[slot].member, ")");
  }

  // Returns why no version has the state that exists once in a slot; empty: some version has.
  [[nodiscard]] std::string WhyNever(uint32_t slot) const {
    const auto here = [&](const AtBoundary* r, const auto& give) {
      return r != nullptr && give(*r);
    };
    const AtBoundary* const owner = ReportOf(slot);
    const AtBoundary* const buddy = from_.members.size() < 2 ? nullptr : ReportOf(Next(slot));
    if (here(owner, [](const auto& r) { return r.live_whole || !r.own_snapshots.empty(); }) ||
        here(buddy, [](const auto& r) { return !r.buddy_snapshots.empty(); })) {
      return "";
    }
    const std::string lost =
        owner == nullptr ? "its owner is lost" : absl::StrCat("its owner ", kNotWhole);
    if (from_.members.size() < 2) return absl::StrCat(lost, " and no other slot keeps copies");
    return absl::StrCat(
        lost, " and ", NameOf(Next(slot)),
        buddy == nullptr ? " with its copies is lost too"
                         : " has no complete copy (the first copy exists one step after a change "
                           "of the world; REWIRE_BUDDY=0 makes no copies)");
  }

  [[nodiscard]] absl::Status NoVersion() const {
    // The slots of lost members come first: their loss is the cause.
    for (const bool lost : {true, false}) {
      for (const StateNeed& need : needs_) {
        if (!Alone(need) || (ReportOf(need.live.front()) == nullptr) != lost) continue;
        const uint32_t slot = need.live.front();
        if (const std::string why = WhyNever(slot); !why.empty()) {
          return absl::DataLossError(absl::StrCat("the state of ", NameOf(slot),
                                                  " no longer exists on any member: ", why));
        }
      }
    }
    std::vector<std::string> all;
    for (const uint64_t version : Versions()) {
      all.push_back(absl::StrCat("version ", version, " lacks ", Missing(version)));
    }
    return absl::DataLossError(absl::StrCat(
        "the survivors have no version of the state in common: ",
        all.empty() ? absl::StrCat("each ", kNotWhole, ", and no copy of replicated state exists")
                    : absl::StrJoin(all, ", ")));
  }

 private:
  [[nodiscard]] uint32_t Next(uint32_t slot) const {
    return (slot + 1) % static_cast<uint32_t>(from_.members.size());
  }
  [[nodiscard]] const AtBoundary* ReportOf(uint32_t slot) const {
    const auto found = reports_.find(from_.members[slot].member);
    return found == reports_.end() ? nullptr : &found->second;
  }
  // Returns whether one slot alone has the state.
  [[nodiscard]] static bool Alone(const StateNeed& need) {
    return need.live.size() == 1 && need.whole.empty() && need.pieces == need.live;
  }
  [[nodiscard]] bool OwnerHas(uint32_t slot, uint64_t version) const {
    const AtBoundary* const r = ReportOf(slot);
    return r != nullptr && Has(r->own_snapshots, version);
  }
  [[nodiscard]] bool BuddyHas(uint32_t slot, uint64_t version) const {
    const AtBoundary* const r = ReportOf(Next(slot));
    return Next(slot) != slot && r != nullptr && Has(r->buddy_snapshots, version);
  }

  const World& from_;
  const std::map<MemberId, AtBoundary>& reports_;
  const StateNeeds& needs_;
};

}  // namespace

absl::StatusOr<RestoreChoice> ChooseVersion(const World& from,
                                            const std::map<MemberId, AtBoundary>& reports) {
  if (reports.empty()) return absl::DataLossError("no member of the world is left");
  for (const StateNeed& need : reports.begin()->second.needs) {
    if (need.live.empty()) return absl::InvalidArgumentError("a report names state of no slot");
    for (const std::vector<uint32_t>* slots : {&need.live, &need.whole, &need.pieces}) {
      for (const uint32_t slot : *slots) {
        if (slot < from.members.size()) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("a report names slot ", slot, " of ", from.members.size(), " slots"));
      }
    }
  }
  const Stock stock(from, reports);
  const std::set<uint64_t> versions = stock.Versions();
  const auto found = std::find_if(versions.rbegin(), versions.rend(),
                                  [&](uint64_t v) { return stock.Missing(v).empty(); });
  if (found == versions.rend()) return stock.NoVersion();
  return RestoreChoice{*found, stock.Sources(*found)};
}

}  // namespace rewire::elastic
