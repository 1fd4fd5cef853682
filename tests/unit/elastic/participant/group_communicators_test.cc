#include "reconfig/elastic/participant/group_communicators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reconfig/elastic/participant/names.h"
#include "reconfig/world/identity.h"

namespace rewire::elastic {
namespace {

using ::testing::HasSubstr;

UniqueIdBytes Id(char byte) { return UniqueIdBytes(NCCL_UNIQUE_ID_BYTES, byte); }

CommunicatorCreated Described(const GroupCommunicators& groups, char byte) {
  CommunicatorCreated created;
  created.communicator = IdentityOfUniqueId(Id(byte).data());
  groups.Describe(&created);
  return created;
}

TEST(GroupCommunicatorsTest, AnIdBelongsToItsNameAndNumber) {
  GroupCommunicators groups;
  groups.EnterWorld(4);
  const auto first = groups.Next("tensor", "tp");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->number, 1u);
  EXPECT_EQ(first->key, std::string(kGroupName) + " tensor, number 1 since epoch 4");
  groups.Made("tensor", "tp", 1, Id('a'));
  EXPECT_EQ(Described(groups, 'a').group, "tensor");
  EXPECT_EQ(Described(groups, 'a').creation, 1u);
  EXPECT_EQ(Described(groups, 'b').group, "");
  EXPECT_EQ(groups.AxesOf("tensor"), "tp");
  EXPECT_EQ(groups.AxesOf("samples"), "");
  EXPECT_EQ(groups.Next("tensor", "tp")->number, 2u);
}

TEST(GroupCommunicatorsTest, AFailedAttemptDoesNotCount) {
  GroupCommunicators groups;
  groups.EnterWorld(1);
  EXPECT_EQ(groups.Next("tensor", "tp")->key, groups.Next("tensor", "tp")->key);
}

TEST(GroupCommunicatorsTest, ANameKeepsItsAxes) {
  GroupCommunicators groups;
  groups.Made("tensor", "tp", 1, Id('a'));
  EXPECT_THAT(std::string(groups.Next("tensor", "tp-cp").status().message()),
              HasSubstr("axes=tp-cp: must be tp as in the first call with name=tensor"));
}

TEST(GroupCommunicatorsTest, ANewWorldCountsAnew) {
  GroupCommunicators groups;
  groups.EnterWorld(1);
  groups.Made("tensor", "tp", 1, Id('a'));
  groups.Made("tensor", "tp", 2, Id('b'));
  groups.EnterWorld(7);
  EXPECT_EQ(groups.Next("tensor", "tp")->number, 1u);
  EXPECT_EQ(Described(groups, 'b').group, "");  // its communicator has another identity now
  EXPECT_EQ(groups.AxesOf("tensor"), "tp");
}

TEST(NamesOfGroupsTest, AreForgottenTogether) {
  Names names(WorldMember{});
  GroupCommunicators groups;
  names.Publish(groups.Next("tensor", "tp")->key, Id('a'));
  names.Publish("group communicator of the program", Id('b'));
  names.Forget(kGroupName);
  EXPECT_FALSE(names.GaveOut(IdentityOfUniqueId(Id('a').data())));
  EXPECT_TRUE(names.GaveOut(IdentityOfUniqueId(Id('b').data())));
}

}  // namespace
}  // namespace rewire::elastic
