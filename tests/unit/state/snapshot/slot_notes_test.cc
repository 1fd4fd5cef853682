// The notes between slots: encoded notes can be decoded, and nothing else is accepted.
#include "reconfig/state/snapshot/slot_notes.h"

#include <gtest/gtest.h>

#include <string>

namespace rewire::state {
namespace {

const PartList kList{7, 1, {{0, 0, 16, 0x1122}, {3, uint64_t{1} << 40, 1, 0}}};

std::string Encoded(const PartList& list) {
  return EncodePartList(list.version, list.index, list.parts);
}

TEST(SlotNotesTest, MemoryHasTheDocumentedBytes) {
  const SharedSnapshots shared{0x01020304, {5, 6, 7}};
  const std::string bytes = EncodeSharedSnapshots(shared);
  EXPECT_EQ(bytes, std::string("\4\3\2\1\5\0\0\0\6\0\0\0\7\0\0\0", 16));
  const auto decoded = DecodeSharedSnapshots(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, shared);
}

TEST(SlotNotesTest, RejectsMemoryWithoutProcessOrDescriptor) {
  const std::string bytes = EncodeSharedSnapshots({1, {5, 6, 7}});
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(DecodeSharedSnapshots(bytes.substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(DecodeSharedSnapshots(bytes + "x").ok());
  EXPECT_FALSE(DecodeSharedSnapshots(EncodeSharedSnapshots({0, {5, 6, 7}})).ok());
  EXPECT_FALSE(DecodeSharedSnapshots(EncodeSharedSnapshots({1, {-1, 6, 7}})).ok());
  EXPECT_FALSE(DecodeSharedSnapshots(EncodeSharedSnapshots({1, {5, 6, -1}})).ok());
}

TEST(SlotNotesTest, DecodesPartsAsEncoded) {
  for (const PartList& list : {kList, PartList{1, 0, {}}}) {
    const auto decoded = DecodePartList(Encoded(list));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, list);
  }
}

TEST(SlotNotesTest, RejectsPartsThatAreCutOrFollowedByMore) {
  const std::string bytes = Encoded(kList);
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(DecodePartList(bytes.substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(DecodePartList(bytes + "x").ok());
}

TEST(SlotNotesTest, RejectsPartsOutOfRange) {
  EXPECT_FALSE(DecodePartList(EncodePartList(7, kKeptVersions, {})).ok());
  for (const ListedPart& part : {ListedPart{0, 0, 0, 0}, ListedPart{0, UINT64_MAX, 1, 0}}) {
    EXPECT_FALSE(DecodePartList(EncodePartList(7, 0, {&part, 1})).ok()) << part.offset;
  }
}

TEST(SlotNotesTest, ForgetHasOneVersion) {
  const std::string bytes = EncodeForget(0x0102030405060708);
  EXPECT_EQ(bytes.size(), 8u);
  EXPECT_EQ(DecodeForget(bytes).value(), 0x0102030405060708u);
  for (const std::string& bad : {bytes.substr(1), bytes + "x"}) {
    EXPECT_EQ(DecodeForget(bad).status().message(),
              "decode snapshots to forget: bytes=" + std::to_string(bad.size()) + ": must be 8");
  }
}

}  // namespace
}  // namespace rewire::state
