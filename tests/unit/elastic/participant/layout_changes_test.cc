// Random changes between random layouts, over sockets, with members that end at random moments. The
// test computes whether the state can live on. All members are in this process, and the test takes
// the leader's decisions.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reconfig/base/check.h"
#include "reconfig/elastic/leader/restore_choice.h"
#include "reconfig/state/plan/layout_file.h"
#include "reconfig/state/plan/snapshot_part.h"
#include "tests/unit/elastic/participant/layout_member.h"
#include "tests/unit/state/topo/any_layout.h"

namespace rewire::elastic {
namespace {

using state::AnyLayout;
using state::Change;

// A random job.
class AnyJob : public LayoutJob {
 public:
  static constexpr uint32_t kMaxSlots = 6;

  explicit AnyJob(AnyLayout* any) {
    const uint32_t layers = 4;
    for (uint32_t slots = 1; slots <= kMaxSlots; ++slots) {
      parallel_.push_back(NewParallel(any, slots, layers));
    }
    for (uint64_t n = any->In(1, 4); n > 0; --n) {
      state::LogicalTensor tensor = any->NewTensor(parallel_.front());
      tensor.name = "t" + std::to_string(n);
      tensor.element_bytes = static_cast<uint32_t>(any->In(1, 6));
      tensor.layer = static_cast<uint32_t>(any->In(0, layers - 1));
      tensor.change =
          any->Of({Change::kConstant, Change::kConstant, Change::kVolatile, Change::kTransient});
      tensor.experts = -1;
      tensor.buffer = "dense";
      this->tensors.push_back(tensor);
    }
    for (const state::Parallel& parallel : parallel_) {
      // Another split, and another division by ZeRO, in each layout.
      std::vector<state::LogicalTensor> tensors = this->tensors;
      for (state::LogicalTensor& tensor : tensors) {
        if (tensor.split.dim < 0) continue;
        tensor.split.dim = static_cast<int32_t>(any->In(0, tensor.shape.size() - 1));
        tensor.split.sections.clear();
        tensor.split.unit = any->In(1, 3);
      }
      const auto layout = state::ParallelLayout::Make(parallel, any->NewZero(), tensors);
      REWIRE_CHECK(layout.ok());
      nlohmann::ordered_json json = ToJson(state::LayoutFile{*layout, {}});
      json.erase("members");
      texts.push_back(json.dump());
    }
  }

 private:
  static state::Parallel NewParallel(AnyLayout* any, uint32_t slots, uint32_t layers) {
    for (;;) {
      state::Parallel p = any->NewParallel();
      p.expert = p.expert_tensor = 1;
      p.spare = 0;
      if (p.slots() > slots || p.slots() + 2 < slots) continue;
      p.spare = slots - p.slots();
      p.layers = layers;
      p.split.assign(size_t{p.pipeline} * p.virtual_stages, 0);
      for (uint32_t layer = 0; layer < layers; ++layer) ++p.split[any->In(0, p.split.size() - 1)];
      return p;
    }
  }

  std::vector<state::Parallel> parallel_;
};

// One job: a change, in the middle of which a member may end.
class Scenario {
 public:
  explicit Scenario(uint64_t seed) : seed_(seed), any_(seed), job_(&any_) {
    const auto before = static_cast<uint32_t>(any_.In(1, AnyJob::kMaxSlots));
    const auto after = static_cast<uint32_t>(any_.In(1, AnyJob::kMaxSlots));
    std::vector<MemberId> ids(before);
    std::iota(ids.begin(), ids.end(), 0);
    for (uint32_t slot = 0; slot < before; ++slot) {
      members_[slot] = std::make_unique<LayoutMember>(slot, &job_, before, slot, false);
    }
    from_ = WorldOf(2, ids);
    // Some stay, in any order, and others join.
    for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[any_.In(0, i - 1)]);
    ids.resize(any_.In(after > 1 ? 1 : 0, std::min<uint64_t>(before, after)));
    if (ids.empty()) ids.push_back(0);
    for (MemberId joiner = before; ids.size() < after; ++joiner) {
      members_[joiner] = std::make_unique<LayoutMember>(joiner, &job_, after,
                                                        static_cast<uint32_t>(ids.size()), true);
      ids.push_back(joiner);
    }
    to_ = WorldOf(3, ids);
    for (const WorldMember& m : from_.members) members_[m.member]->StartCopies(from_);
    for (const WorldMember& m : from_.members) members_[m.member]->AwaitCopies();
  }

  // Returns whether the state lives on.
  bool Run() {
    enum Moment : uint64_t { kPreparing, kPrepared, kStreaming, kFinishing, kNever };
    const auto moment = static_cast<Moment>(any_.In(0, 5));
    for (auto& [id, member] : members_) {
      member->Begin({3, TransitionKind::kBoundary, from_, to_, kSecret});
    }
    if (moment == kPreparing) return Lose();
    std::optional<uint64_t> hash;
    for (auto& [id, member] : members_) {
      const absl::StatusOr<uint64_t> planned = member->Planned();
      EXPECT_TRUE(planned.ok()) << "seed " << seed_ << " member " << id << " " << planned.status();
      if (!planned.ok()) return Lose();
      EXPECT_EQ(*planned, hash.value_or(*planned)) << "seed " << seed_ << " member " << id;
      hash = *planned;
    }
    if (moment == kPrepared) return Lose();
    for (auto& [id, member] : members_) member->reshape()->Start(kVersion);
    if (moment == kStreaming) return Lose();
    for (auto& [id, member] : members_) member->reshape()->Finish();
    if (moment == kFinishing) return Lose();
    for (auto& [id, member] : members_) {
      const absl::Status streamed = member->Streamed();
      EXPECT_TRUE(streamed.ok()) << "seed " << seed_ << " member " << id << " " << streamed;
    }
    Commit(to_, false);
    return true;
  }

 private:
  [[nodiscard]] bool HasBuffers(MemberId id) const {
    return members_.at(id)->program().layout->zero().way == state::ZeroWay::kBuffer;
  }
  World WorldOf(Epoch epoch, const std::vector<MemberId>& ids) const {
    World world{epoch, {}};
    for (const MemberId id : ids) world.members.push_back(members_.at(id)->address());
    return world;
  }
  void Commit(const World& world, bool restored) {
    for (uint32_t slot = 0; slot < world.members.size(); ++slot) {
      LayoutMember& member = *members_[world.members[slot].member];
      member.Adopt(slot);
      member.Check(restored, seed_);
    }
  }

  // One member or two end now, and the change is called off.
  bool Lose() {
    std::this_thread::sleep_for(std::chrono::microseconds(any_.In(0, 3000)));
    for (uint64_t victims = any_.In(0, 2) == 0 ? 2 : 1; victims > 0 && !members_.empty();
         --victims) {
      auto victim = members_.begin();
      std::advance(victim, any_.In(0, members_.size() - 1));
      members_.erase(victim);
    }
    for (auto& [id, member] : members_) member->EndReshape();
    std::vector<MemberId> ids;
    for (const WorldMember& m : from_.members) {
      if (!members_.contains(m.member)) continue;
      ids.push_back(m.member);
      members_[m.member]->Check(false, seed_);  // as if nothing had happened
    }
    if (ids.empty()) return false;
    return ids.size() == from_.members.size() || Restore(ids);
  }

  // Returns whether the survivors have every element, in place or as a copy of the previous slot's.
  [[nodiscard]] bool Exists(const std::vector<MemberId>& ids) const {
    const state::ParallelLayout& layout = *members_.at(ids.front())->program().layout;
    const uint32_t slots = layout.slots();
    for (size_t t = 0; t < layout.tensors().size(); ++t) {
      const state::LogicalTensor& tensor = layout.tensors()[t];
      if (tensor.change == Change::kTransient) continue;
      std::set<uint64_t> needed, had;
      for (uint32_t slot = 0; slot < slots; ++slot) {
        ForEachByte(layout, t, slot, [&](uint64_t byte, uint64_t) { needed.insert(byte); });
        const bool alive = members_.contains(from_.members[slot].member);
        const bool kept = members_.contains(from_.members[(slot + 1) % slots].member) &&
                          CopiesPieces(layout) && !KeptWholeBy(layout, t, slot);
        const state::Box copied = SnapshotPart(layout, t, slot);
        ForEachByte(layout, t, slot, [&](uint64_t byte, uint64_t place) {
          const uint64_t element = place / tensor.element_bytes;
          const bool copy = copied.begin <= element && element < copied.end;
          const bool in_place = alive && (copy || tensor.change == Change::kConstant);
          if (in_place || (kept && copy)) had.insert(byte);
        });
      }
      if (had != needed) return false;
    }
    return true;
  }

  bool Restore(const std::vector<MemberId>& ids) {
    std::map<MemberId, AtBoundary> reports;
    for (const MemberId id : ids) reports[id] = members_[id]->Report();
    const absl::StatusOr<RestoreChoice> choice = ChooseVersion(from_, reports);
    // The leader does not know that two stages may have an element in different shares of a buffer.
    EXPECT_LE(choice.ok(), Exists(ids)) << "seed " << seed_ << " " << choice.status();
    EXPECT_TRUE(choice.ok() || !Exists(ids) || HasBuffers(ids.front()))
        << "seed " << seed_ << " " << choice.status();
    if (!choice.ok()) return false;
    EXPECT_EQ(choice->version, kVersion);
    const World rest = WorldOf(4, ids);
    for (const MemberId id : ids) {
      members_[id]->Begin({4, TransitionKind::kLoss, from_, rest, kSecret});
    }
    for (const MemberId id : ids) {
      const absl::StatusOr<uint64_t> planned = members_[id]->Planned();
      EXPECT_TRUE(planned.ok()) << "seed " << seed_ << " member " << id << " " << planned.status();
      if (!planned.ok()) return false;
    }
    for (const MemberId id : ids) {
      members_[id]->reshape()->Restore(choice->version, choice->sources, false);
    }
    for (const MemberId id : ids) {
      const absl::Status streamed = members_[id]->Streamed();
      EXPECT_TRUE(streamed.ok()) << "seed " << seed_ << " member " << id << " " << streamed;
    }
    Commit(rest, true);
    return true;
  }

  const uint64_t seed_;
  AnyLayout any_;
  AnyJob job_;
  std::map<MemberId, std::unique_ptr<LayoutMember>> members_;
  World from_, to_;
};

TEST(LayoutChangesTest, AnotherShapeInTheNextLayoutIsRefused) {
  LayoutJob job;
  job.tensors.emplace_back();
  job.tensors.back().name = "t";
  job.tensors.back().shape = {8};
  job.texts = {R"({"parallel": {}, "tensors": [{"name": "t", "shape": [8]}]})",
               R"({"parallel": {"data": 2}, "tensors": [{"name": "t", "shape": [2, 4]}]})"};
  LayoutMember member(0, &job, 1, 0, false);
  const World alone{2, {member.address()}};
  member.Begin({3, TransitionKind::kBoundary, alone, {3, {member.address(), {1, 1, ""}}}, kSecret});
  EXPECT_EQ(member.Planned().status().message(),
            "plan: tensor t: its shape or element_bytes differs");
}

TEST(LayoutChangesTest, NoElementIsLostOrWrong) {
  int lived = 0;
  for (uint64_t seed = 1; seed <= 300 && !HasFailure(); ++seed) {
    Scenario scenario(seed);
    lived += scenario.Run() ? 1 : 0;
  }
  EXPECT_GT(lived, 200);
}

}  // namespace
}  // namespace rewire::elastic
