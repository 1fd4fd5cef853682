// Drives a Leader by hand in tests: records its actions, answers as its store, and sends its
// members' messages. Owned by one thread.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reconfig/elastic/leader/leader.h"

namespace rewire::elastic {

inline const CommunicatorId kComm{0xaaaaaaaa00000000, 1};
inline const std::vector<MemberId> kThree{0, 1, 2};
// The needs of state that is sharded over three slots.
inline const StateNeeds kAllSharded{
    {{0}, {}, {0}}, {{0, 1, 2}, {}, {0, 1, 2}}, {{1}, {}, {1}}, {{2}, {}, {2}}};

inline std::vector<MemberId> Ids(const World& world) {
  std::vector<MemberId> ids;
  for (const WorldMember& m : world.members) ids.push_back(m.member);
  return ids;
}

inline Pledge Agreed(Epoch epoch, uint32_t round, std::vector<CommunicatorCounter> counters = {}) {
  return {epoch, round, true, {}, "", std::move(counters)};
}
inline Pledge NotAgreed(Epoch epoch, uint32_t round, const CommunicatorId& communicator,
                        std::string reason, std::vector<CommunicatorCounter> counters = {}) {
  return {epoch, round, false, communicator, std::move(reason), std::move(counters)};
}

class LeaderDriver {
 public:
  explicit LeaderDriver(LeaderOptions options = {}, WorldRecord record = {})
      : leader(std::move(options), std::move(record)) {
    leader.Start(now, &out);
    Store();
  }

  static LeaderOptions Options(uint32_t members) {
    LeaderOptions o;
    for (MemberId m = 0; m < members; ++m) o.initial_members.push_back(m);
    o.max_members = 6;
    o.job_key.bytes[0] = 11;
    return o;
  }
  // Forms a job of n members in epoch 1, each with one communicator over the world.
  void Form(uint32_t n, bool cooperates = true) {
    for (MemberId m = 0; m < n; ++m) Connect(m, cooperates);
    Store();
    for (MemberId m = 0; m < n; ++m) Say(m, CommunicatorCreated{kComm, n, {m}, false, ""});
    EXPECT_EQ(leader.phase(), Phase::kSteady);
    out.clear();
  }
  void Connect(MemberId m, bool cooperates = true, Epoch epoch = 0, bool broken = false,
               uint32_t positions = 0) {
    leader.OnConnect(now, Hello{m, 100 + m, 1, cooperates, "addr", broken, epoch, positions, {}},
                     &out);
  }
  void Say(MemberId m, const Message& message) { leader.OnMessage(now, m, message, &out); }
  void Pass(Duration d) {
    // Advances in steps as an owner would, with heartbeats of all connected members.
    for (Time end = now + d; now < end;) {
      now = std::min(end, now + milliseconds(400));
      for (const MemberStatus& m : leader.Members(now)) {
        if (m.connected && !silent.contains(m.member)) Say(m.member, Heartbeat{});
      }
      leader.OnTick(now, &out);
    }
  }
  // Answers the pending swap like a store without other writers.
  bool Store() {
    const auto swap = Last<CompareAndSwap>();
    if (!swap || swap->record.revision <= stored) return false;
    stored = swap->record.revision;
    leader.OnStoreResult(now, StoreAnswer{true, swap->record}, &out);
    return true;
  }

  template <typename T>
  [[nodiscard]] std::optional<T> Last() const {
    for (auto it = out.rbegin(); it != out.rend(); ++it) {
      if (const auto* a = std::get_if<T>(&*it)) return *a;
    }
    return std::nullopt;
  }
  // Returns the last message of a type that was sent to the member.
  template <typename T>
  [[nodiscard]] std::optional<T> Sent(MemberId to) const {
    for (auto it = out.rbegin(); it != out.rend(); ++it) {
      const auto* a = std::get_if<SendTo>(&*it);
      if (a == nullptr || a->member != to) continue;
      if (const auto* m = std::get_if<T>(&a->message)) return *m;
    }
    return std::nullopt;
  }
  [[nodiscard]] bool Noted(std::string_view text) const {
    for (const LeaderAction& a : out) {
      const auto* note = std::get_if<Note>(&a);
      if (note != nullptr && note->text.find(text) != std::string::npos) return true;
    }
    return false;
  }
  uint64_t Ask(const ChangeRequest& request) {
    const absl::StatusOr<uint64_t> id = leader.OnRequest(now, request, &out);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  std::string AskInVain(const ChangeRequest& request) {
    const size_t before = out.size();
    const absl::StatusOr<uint64_t> id = leader.OnRequest(now, request, &out);
    EXPECT_FALSE(id.ok());
    EXPECT_EQ(out.size(), before) << "a refused request must do nothing";
    return std::string(id.status().message());
  }

  // ---- the members' part of a transition, without errors
  [[nodiscard]] Epoch epoch() const { return Last<SendTo>() ? prepared_epoch_ : 0; }
  void Prepare(const std::vector<MemberId>& members, MemberId minter) {
    ASSERT_TRUE(Sent<rewire::elastic::Prepare>(members[0]).has_value());
    prepared_epoch_ = Sent<rewire::elastic::Prepare>(members[0]).value().epoch;
    Say(minter, Minted{prepared_epoch_, kComm, UniqueIdBytes(128, 'u')});
    for (MemberId m : members) {
      Say(m, Prepared{prepared_epoch_, true, "", 5, {{kComm, 100 + m}, {kUpdateBoundary, 7}}});
    }
  }
  void PledgeAll(const std::vector<MemberId>& members, uint32_t round = 0) {
    for (MemberId m : members) Say(m, Agreed(prepared_epoch_, round));
  }
  void BoundaryAll(const std::vector<MemberId>& members, uint64_t version = 8) {
    for (MemberId m : members) {
      Say(m, AtBoundary{prepared_epoch_, version, true, {version}, {version}, kAllSharded});
    }
  }
  void VerifyAll(const std::vector<MemberId>& members) {
    for (MemberId m : members) Say(m, Verified{prepared_epoch_, true, "", 10, 10});
  }
  void Finish(const std::vector<MemberId>& members) {
    for (MemberId m : members) Say(m, Entered{prepared_epoch_, 1000});
  }

  // Runs the survivors' whole recovery from a loss. The first survivor mints.
  void Recover(const std::vector<MemberId>& survivors) {
    Prepare(survivors, survivors.front());
    BoundaryAll(survivors);
    VerifyAll(survivors);
    Store();
    Finish(survivors);
  }

  Time now = Time{} + seconds(100);
  std::vector<LeaderAction> out;
  std::set<MemberId> silent;
  Leader leader;
  uint64_t stored = 0;

 private:
  Epoch prepared_epoch_ = 0;
};

// Three members in a world.
class LeaderTest : public testing::Test {
 protected:
  explicit LeaderTest(bool cooperates = true) : d(LeaderDriver::Options(3)) {
    d.Form(3, cooperates);
  }
  LeaderDriver d;
};

}  // namespace rewire::elastic
