// The choice of a port's address, and its texts and speeds.
#include "reconfig/rdma/port.h"

#include <gtest/gtest.h>

namespace rewire::rdma {
namespace {

Gid Local(uint8_t low) {
  Gid gid;
  gid.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, low};
  return gid;
}

Gid Global(uint8_t net, uint8_t low) {
  Gid gid;
  gid.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, net};
  gid.bytes[15] = low;
  return gid;
}

// The table that Linux shows for an interface with an IPv4 and a global IPv6 address.
std::vector<GidEntry> Usual() {
  return {{0, Local(1), GidType::kRoceV1, 4},
          {1, Local(1), GidType::kRoceV2, 4},
          {2, Gid::OfIpv4(10, 0, 0, 1), GidType::kRoceV1, 4},
          {3, Gid::OfIpv4(10, 0, 0, 1), GidType::kRoceV2, 4},
          {4, Global(1, 1), GidType::kRoceV1, 4},
          {5, Global(1, 1), GidType::kRoceV2, 4}};
}

int Chosen(const std::vector<GidEntry>& table, const GidWish& wish,
           LinkLayer link = LinkLayer::kEthernet) {
  const auto entry = ChooseGid(table, link, wish);
  return entry ? static_cast<int>(entry->index) : -1;
}

TEST(GidChoice, PrefersRoceV2AndIpv4) { EXPECT_EQ(Chosen(Usual(), {}), 3); }

TEST(GidChoice, PrefersGlobalToLinkLocalWithinType) {
  auto table = Usual();
  table.erase(table.begin() + 3);
  EXPECT_EQ(Chosen(table, {}), 5);
  table.pop_back();
  EXPECT_EQ(Chosen(table, {}), 1);
  EXPECT_EQ(Chosen({{0, Local(1), GidType::kRoceV1, 4}}, {}), 0);
}

TEST(GidChoice, MatchesFamilyTypeAndScopeOfPeer) {
  GidWish wish;
  wish.peer = GidEntry{7, Global(1, 9), GidType::kRoceV2};
  EXPECT_EQ(Chosen(Usual(), wish), 5);
  wish.peer->type = GidType::kRoceV1;
  EXPECT_EQ(Chosen(Usual(), wish), 4);
  wish.peer = GidEntry{7, Local(9), GidType::kRoceV2};
  EXPECT_EQ(Chosen(Usual(), wish), 1);
  // The choice is empty instead of an entry that cannot work.
  wish.peer = GidEntry{7, Gid::OfIpv4(10, 0, 0, 9), GidType::kRoceV2};
  EXPECT_EQ(Chosen({Usual()[5]}, wish), -1);
}

TEST(GidChoice, PrefersSubnetOfPeer) {
  const std::vector<GidEntry> table = {{0, Gid::OfIpv4(10, 1, 0, 1), GidType::kRoceV2, 4},
                                       {1, Gid::OfIpv4(10, 2, 0, 1), GidType::kRoceV2, 5}};
  GidWish wish;
  wish.peer = GidEntry{0, Gid::OfIpv4(10, 2, 0, 7), GidType::kRoceV2};
  EXPECT_EQ(Chosen(table, wish), 1);
}

TEST(GidChoice, UsesOnlyRequestedInterface) {
  const std::vector<GidEntry> table = {{0, Gid::OfIpv4(10, 1, 0, 1), GidType::kRoceV2, 4},
                                       {1, Local(2), GidType::kRoceV1, 5}};
  GidWish wish;
  wish.interface = 5;
  EXPECT_EQ(Chosen(table, wish), 1);
  wish.interface = 6;
  EXPECT_EQ(Chosen(table, wish), -1);
}

TEST(GidChoice, KeepsAddressAtNewIndexAfterFlap) {
  const auto before = ChooseGid(Usual(), LinkLayer::kEthernet, {});
  ASSERT_TRUE(before.has_value());
  // The addresses return in another order.
  const std::vector<GidEntry> after = {{0, Local(1), GidType::kRoceV1, 4},
                                       {1, Local(1), GidType::kRoceV2, 4},
                                       {2, Gid::OfIpv4(10, 0, 0, 2), GidType::kRoceV2, 4},
                                       {9, Gid::OfIpv4(10, 0, 0, 1), GidType::kRoceV2, 4}};
  EXPECT_EQ(Chosen(after, {{}, 0, before}), 9);
  // If the entry is gone for good, another entry is chosen.
  EXPECT_EQ(Chosen({after.begin(), after.begin() + 3}, {{}, 0, before}), 2);
}

TEST(GidChoice, InfinibandUsesFirstEntry) {
  const std::vector<GidEntry> table = {{1, Global(1, 1), GidType::kInfiniBand, 0},
                                       {0, Local(1), GidType::kInfiniBand, 0}};
  EXPECT_EQ(Chosen(table, {}, LinkLayer::kInfiniBand), 0);
  EXPECT_EQ(Chosen(table, {}), -1);
}

TEST(GidChoice, ReturnsNothingForEmptyTable) {
  EXPECT_EQ(Chosen({}, {}), -1);
  EXPECT_EQ(Chosen({{0, Gid{}, GidType::kRoceV2, 4}}, {}), -1);
}

TEST(Gid, FormatsAsIpv6Address) {
  EXPECT_EQ(Gid::OfIpv4(10, 0, 0, 1).Text(), "::ffff:10.0.0.1");
  EXPECT_EQ(Local(1).Text(), "fe80::200:ff:fe00:1");
}

TEST(LinkSpeed, MultipliesWidthBySpeed) {
  EXPECT_EQ(LinkSpeedMbps(2, 32), 100'000U);   // 4x EDR
  EXPECT_EQ(LinkSpeedMbps(2, 128), 400'000U);  // 4x NDR
  EXPECT_EQ(LinkSpeedMbps(1, 1), 2500U);
  EXPECT_EQ(LinkSpeedMbps(16, 64), 100'000U);
  EXPECT_EQ(LinkSpeedMbps(2, 3), 0U);
  EXPECT_EQ(LinkSpeedMbps(0, 32), 0U);
}

}  // namespace
}  // namespace rewire::rdma
