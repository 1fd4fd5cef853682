// The member's reports of a communicator that has several ranks in its process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reconfig/elastic/member/member.h"

namespace rewire::elastic {
namespace {

using testing::ElementsAre;

const CommunicatorId kFour{0xaaaaaaaa00000000, 1};

class MemberRanksTest : public testing::Test {
 protected:
  MemberRanksTest() : member(MemberOptions{}) { member.OnConnected(now, &out); }
  void Make(uint32_t rank, const std::string& pin = "") {
    member.OnCommunicatorCreated(now, {kFour, 4, {rank}, !pin.empty(), pin}, &out);
  }
  void Destroy(uint32_t rank) { member.OnCommunicatorDestroyed(now, kFour, rank, &out); }
  // Returns the last message of a type, and forgets all messages.
  template <typename T>
  std::optional<T> Take() {
    std::optional<T> last;
    for (const MemberAction& action : std::exchange(out, {})) {
      const auto* sent = std::get_if<SendMessage>(&action);
      const auto* m = sent != nullptr ? std::get_if<T>(&sent->message) : nullptr;
      if (m != nullptr) last = *m;
    }
    return last;
  }

  Time now = Time{} + seconds(50);
  std::vector<MemberAction> out;
  Member member;
};

TEST_F(MemberRanksTest, EachReportHasAllRanks) {
  Make(3);
  EXPECT_THAT(Take<CommunicatorCreated>().value().held, ElementsAre(3u));
  Make(2);
  EXPECT_THAT(Take<CommunicatorCreated>().value().held, ElementsAre(2u, 3u));
  member.OnConnected(now, &out);
  EXPECT_THAT(Take<CommunicatorCreated>().value().held, ElementsAre(2u, 3u));
}

TEST_F(MemberRanksTest, OnlyTheLastRankEndsTheCommunicator) {
  Make(2);
  Make(3);
  Destroy(2);
  EXPECT_THAT(Take<CommunicatorCreated>().value().held, ElementsAre(3u));
  Destroy(3);
  EXPECT_TRUE(Take<CommunicatorDestroyed>().has_value());
  Destroy(3);
  EXPECT_TRUE(out.empty());
}

TEST_F(MemberRanksTest, APinOfOneRankStaysWhenAnotherIsMade) {
  Make(2, "a live CUDA graph");
  Make(3);
  const auto created = Take<CommunicatorCreated>();
  EXPECT_TRUE(created.value().pinned);
  EXPECT_EQ(created->reason, "a live CUDA graph");
}

}  // namespace
}  // namespace rewire::elastic
