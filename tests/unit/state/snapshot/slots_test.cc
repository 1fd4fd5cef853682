// The versions of a slot's state in memory: complete, incomplete and refused pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>

#include "reconfig/state/snapshot/snapshot_slots.h"
#include "reconfig/state/stream/content.h"

namespace rewire::state {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SlotsTest : public ::testing::Test {
 protected:
  // Elements 2..4 of 4 bytes, nothing of the second tensor, elements 0..3 of 1 byte.
  SlotsTest() { slots_.Reset(Pieces()); }
  static SnapshotSlots::Shape Pieces() {
    const std::vector<Box> boxes = {{2, 4}, {}, {0, 3}};
    return {boxes, boxes, {4, 8, 1}};
  }
  absl::Status Put(uint64_t version, uint32_t tensor, uint64_t offset, const std::string& bytes) {
    return slots_.Put(version, tensor, offset, bytes,
                      HashContent(bytes.data(), bytes.size(), offset));
  }
  void Fill(uint64_t version) {
    EXPECT_TRUE(Put(version, 0, 8, "abcd").ok());
    EXPECT_TRUE(Put(version, 0, 12, "efgh").ok());
    EXPECT_TRUE(Put(version, 2, 0, "xyz").ok());
  }
  SnapshotSlots slots_;
};

TEST_F(SlotsTest, VersionIsCompleteAfterEveryByte) {
  EXPECT_EQ(slots_.bytes(), 11u);
  EXPECT_TRUE(Put(5, 0, 12, "efgh").ok());
  EXPECT_TRUE(Put(5, 2, 0, "xyz").ok());
  EXPECT_FALSE(slots_.Arrived(5));
  EXPECT_THAT(slots_.WholeVersions(), IsEmpty());
  EXPECT_TRUE(Put(5, 0, 8, "abcd").ok());
  EXPECT_TRUE(slots_.Arrived(5));
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(5));
  EXPECT_EQ(std::string(slots_.Piece(5, 0), 8), "abcdefgh");
  EXPECT_EQ(slots_.Piece(6, 0), nullptr);
  EXPECT_EQ(slots_.Piece(5, 3), nullptr);
}

TEST_F(SlotsTest, KeepsTheNewestVersionsAndRefusesOlderOnes) {
  Fill(5);
  Fill(6);
  Fill(7);
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(5, 6, 7));
  EXPECT_FALSE(Put(4, 2, 0, "xyz").ok());
  EXPECT_TRUE(Put(8, 2, 0, "xyz").ok());  // the first byte of 8 removes 5
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(6, 7));
  EXPECT_EQ(slots_.Piece(5, 0), nullptr);
}

TEST_F(SlotsTest, ForgottenTensorsCanComeAgain) {
  for (const uint64_t version : {3, 4, 5}) Fill(version);
  slots_.Forget(4, std::vector<uint32_t>{0});
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(5));
  EXPECT_TRUE(Put(4, 0, 8, "ABCD").ok());
  EXPECT_TRUE(Put(4, 0, 12, "EFGH").ok());
  EXPECT_FALSE(Put(4, 2, 0, "xyz").ok());  // was not forgotten
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(4, 5));
  EXPECT_EQ(std::string(slots_.Piece(4, 0), 8), "ABCDEFGH");
}

TEST_F(SlotsTest, ForgottenVersionsCanComeAgain) {
  for (const uint64_t version : {3, 4, 5}) Fill(version);
  slots_.Forget(4);
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(5));
  EXPECT_EQ(slots_.Piece(4, 0), nullptr);
  Fill(4);
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(4, 5));
}

TEST_F(SlotsTest, ChangedBytesMakeVersionIncomplete) {
  Fill(5);
  Fill(6);
  const_cast<char*>(slots_.Piece(6, 0))[5] ^= 1;
  EXPECT_TRUE(slots_.Arrived(6));
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(5));
}

TEST_F(SlotsTest, RejectsForeignOrDuplicateParts) {
  EXPECT_FALSE(Put(5, 3, 0, "x").ok());
  EXPECT_FALSE(Put(5, 0, 4, "abcd").ok());
  EXPECT_FALSE(Put(5, 0, 12, "efghi").ok());
  EXPECT_FALSE(Put(5, 0, UINT64_MAX, "a").ok());
  EXPECT_FALSE(Put(5, 1, 0, "x").ok());
  EXPECT_TRUE(Put(5, 2, 0, "xy").ok());
  EXPECT_FALSE(Put(5, 2, 1, "yz").ok());
  EXPECT_THAT(slots_.WholeVersions(), IsEmpty());
}

TEST_F(SlotsTest, UsesReservedMemoryAndReturnsOldMemory) {
  EXPECT_EQ(Pieces().Room(), 11u);
  SnapshotSlots::Memory memory = slots_.Reserve(Pieces().Room());
  const char* const reserved = memory.blocks[0].data();
  ASSERT_EQ(memory.blocks[0].size(), 11u);
  slots_.Reset(Pieces(), std::move(memory));
  Fill(5);
  EXPECT_EQ(slots_.Piece(5, 0), reserved);
  EXPECT_EQ(slots_.Reserve(11).blocks[0].size(), 0u) << "there is enough";
  memory = slots_.Reserve(12);
  ASSERT_EQ(memory.blocks[0].size(), 12u);
  const SnapshotSlots::Memory old = slots_.Reset(Pieces(), std::move(memory));
  EXPECT_EQ(old.blocks[0].data(), reserved);
}

TEST_F(SlotsTest, AddsPartThatWasWrittenInPlace) {
  const auto room = slots_.Room(5, 0, 8, 8);
  ASSERT_TRUE(room.ok());
  std::copy_n("abcdefgh", 8, *room);
  EXPECT_FALSE(slots_.Arrived(5));
  ASSERT_TRUE(slots_.Add(5, 0, 8, 8, HashContent("abcdefgh", 8, 8)).ok());
  ASSERT_TRUE(Put(5, 2, 0, "xyz").ok());
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(5));
  EXPECT_FALSE(slots_.Room(5, 0, 12, 5).ok()) << "beyond the piece";
  EXPECT_FALSE(slots_.Room(5, 0, 8, 4).ok()) << "it has come already";
}

// One slot's memory as the next slot sees it.
class SharedSlotsTest : public ::testing::Test {
 protected:
  SharedSlotsTest() {
    // The owner keeps a second tensor that the next slot does not have.
    owner_.Reset({{{0, 16}, {0, 3}, {4, 8}}, {{0, 16}, {0, 3}, {4, 8}}, {1, 1, 1}});
    next_.Reset({{{0, 16}, {}, {4, 8}}, {{0, 16}, {0, 3}, {4, 8}}, {1, 1, 1}});
  }
  void Fill(uint64_t version) {
    const std::string first(16, static_cast<char>('a' + version));
    for (const auto& [tensor, offset, text] :
         {std::tuple<uint32_t, uint64_t, std::string>{0, 0, first},
          {1, 0, "own"},
          {2, 4, "more"}}) {
      ASSERT_TRUE(
          owner_.Put(version, tensor, offset, text, HashContent(text.data(), text.size(), offset))
              .ok());
    }
  }
  absl::Status Map() {
    const auto fds = owner_.Share();
    if (!fds.ok()) return fds.status();
    return next_.MapOf(getpid(), *fds);
  }
  absl::Status Tell(uint64_t version) {
    uint32_t index = 0;
    auto parts = owner_.List(version, &index);
    std::erase_if(parts, [](const auto& p) { return p.tensor == 1; });
    return next_.TakeList(version, index, parts);
  }

  SnapshotSlots owner_{/*shared=*/true};
  SnapshotSlots next_;
};

TEST_F(SharedSlotsTest, ListedPartsNeedNoCopy) {
  ASSERT_TRUE(Map().ok());
  Fill(1);
  Fill(2);
  ASSERT_TRUE(Tell(1).ok());
  ASSERT_TRUE(Tell(2).ok());
  EXPECT_THAT(next_.WholeVersions(), ElementsAre(1, 2));
  EXPECT_EQ(std::string(next_.Piece(2, 2), 4), "more");
  EXPECT_EQ(std::string(next_.Piece(1, 0), 2), "bb");
}

TEST_F(SharedSlotsTest, OverwrittenVersionIsIncomplete) {
  ASSERT_TRUE(Map().ok());
  for (const uint64_t version : {1, 2, 3}) {
    Fill(version);
    ASSERT_TRUE(Tell(version).ok());
  }
  ASSERT_TRUE(owner_.Put(4, 0, 0, std::string("d"), HashContent("d", 1, 0)).ok());
  EXPECT_THAT(next_.WholeVersions(), ElementsAre(2, 3));
}

TEST_F(SharedSlotsTest, MappedMemoryMayChangeWhileItsOwnerLives) {
  EXPECT_FALSE(next_.MayChange());
  const auto fds = owner_.Share();
  ASSERT_TRUE(fds.ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    pause();
    _exit(0);
  }
  EXPECT_TRUE(next_.MapOf(child, *fds).ok());
  EXPECT_TRUE(next_.MayChange());
  SnapshotSlots other;
  other.Reset({{{0, 16}}, {{0, 16}}, {1}});
  EXPECT_TRUE(other.MapOf(child, *fds).ok());
  other.Reset({{{0, 16}}, {{0, 16}}, {1}}, {}, SnapshotSlots::Keep::kNothing);
  EXPECT_FALSE(other.MayChange()) << "nothing is mapped any more";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(next_.MayChange());
}

TEST_F(SharedSlotsTest, MemoryThatWasLeftToTheNextSlotIsNotWrittenAgain) {
  ASSERT_TRUE(Map().ok());
  for (const uint64_t version : {1, 2, 3}) {
    Fill(version);
    ASSERT_TRUE(Tell(version).ok());
  }
  owner_.LeaveMemory();
  EXPECT_THAT(owner_.WholeVersions(), ElementsAre(1, 2, 3));
  for (const uint64_t version : {4, 5, 6, 7}) Fill(version);
  EXPECT_THAT(owner_.WholeVersions(), ElementsAre(5, 6, 7));
  EXPECT_THAT(next_.WholeVersions(), ElementsAre(1, 2, 3));
}

TEST_F(SharedSlotsTest, ForgottenPartsAreNotWrittenIntoLeftMemoryAgain) {
  ASSERT_TRUE(Map().ok());
  for (const uint64_t version : {1, 2}) {
    Fill(version);
    ASSERT_TRUE(Tell(version).ok());
  }
  owner_.LeaveMemory();
  owner_.Forget(2, std::vector<uint32_t>{0});
  EXPECT_THAT(owner_.WholeVersions(), IsEmpty());
  const std::string changed(16, 'z');
  ASSERT_TRUE(owner_.Put(2, 0, 0, changed, HashContent(changed.data(), 16, 0)).ok());
  EXPECT_THAT(owner_.WholeVersions(), ElementsAre(2)) << "the other parts have stayed";
  EXPECT_EQ(std::string(owner_.Piece(2, 2), 4), "more");
  EXPECT_THAT(next_.WholeVersions(), ElementsAre(1, 2));
  EXPECT_EQ(std::string(next_.Piece(2, 0), 1), "c");
}

TEST_F(SharedSlotsTest, LeftMemoryIsNotUsedInTheNextWorld) {
  ASSERT_TRUE(Map().ok());
  Fill(1);
  ASSERT_TRUE(Tell(1).ok());
  owner_.LeaveMemory();
  EXPECT_GT(owner_.Reserve(27).blocks[0].size(), 0u);
  owner_.Reset({{{0, 16}, {0, 3}, {4, 8}}, {{0, 16}, {0, 3}, {4, 8}}, {1, 1, 1}});
  for (const uint64_t version : {5, 6, 7}) Fill(version);
  EXPECT_THAT(next_.WholeVersions(), ElementsAre(1));
}

TEST_F(SharedSlotsTest, MappedMemoryOutlivesItsOwner) {
  auto owner = std::make_unique<SnapshotSlots>(true);
  owner->Reset({{{0, 4}}, {{0, 4}}, {1}});
  next_.Reset({{{0, 4}}, {{0, 4}}, {1}});
  const auto fds = owner->Share();
  ASSERT_TRUE(fds.ok());
  ASSERT_TRUE(next_.MapOf(getpid(), *fds).ok());
  ASSERT_TRUE(owner->Put(7, 0, 0, std::string("abcd"), HashContent("abcd", 4, 0)).ok());
  uint32_t index = 0;
  const auto parts = owner->List(7, &index);
  ASSERT_TRUE(next_.TakeList(7, index, parts).ok());
  owner.reset();
  EXPECT_THAT(next_.WholeVersions(), ElementsAre(7));
}

TEST_F(SharedSlotsTest, DoesNotWriteReceivedBytesIntoOwnersMemory) {
  ASSERT_TRUE(Map().ok());
  Fill(1);
  ASSERT_TRUE(Tell(1).ok());
  const std::string bytes(16, 'z');
  ASSERT_TRUE(next_.Put(2, 0, 0, bytes, HashContent(bytes.data(), 16, 0)).ok());
  ASSERT_TRUE(next_.Put(2, 2, 4, std::string("less"), HashContent("less", 4, 4)).ok());
  EXPECT_THAT(next_.WholeVersions(), ElementsAre(1, 2));
  for (const uint64_t version : {3, 4}) {
    ASSERT_TRUE(next_.Put(version, 0, 0, bytes, HashContent(bytes.data(), 16, 0)).ok());
  }
  EXPECT_THAT(next_.WholeVersions(), ElementsAre(2));
  EXPECT_THAT(owner_.WholeVersions(), ElementsAre(1));
  Fill(5);
  EXPECT_FALSE(Tell(5).ok()) << "it is not mapped any more";
}

TEST_F(SharedSlotsTest, RejectsListsForUnmappedMemory) {
  const ListedPart part = {0, 0, 16, 0};
  EXPECT_FALSE(next_.TakeList(1, 0, {&part, 1}).ok()) << "nothing is mapped";
  ASSERT_TRUE(Map().ok());
  EXPECT_FALSE(next_.TakeList(1, kKeptVersions, {&part, 1}).ok()) << "there is no such file";
  const ListedPart beyond = {0, 8, 16, 0};
  EXPECT_FALSE(next_.TakeList(1, 0, {&beyond, 1}).ok());
  const ListedPart nobodys = {9, 0, 1, 0};
  EXPECT_FALSE(next_.TakeList(1, 0, {&nobodys, 1}).ok());
  const ListedPart owners_own = {1, 0, 3, 0};
  EXPECT_FALSE(next_.TakeList(1, 0, {&owners_own, 1}).ok());
  EXPECT_TRUE(next_.TakeList(1, 0, {&part, 1}).ok());
  EXPECT_FALSE(next_.TakeList(1, 0, {&part, 1}).ok()) << "twice";
}

TEST_F(SharedSlotsTest, RejectsMissingOrTooSmallMemory) {
  EXPECT_FALSE(next_.MapOf(getpid(), {-1, -1, -1}).ok());
  SnapshotSlots small(true);
  small.Reset({{{0, 1}}, {{0, 1}}, {1}});
  const auto fds = small.Share();
  ASSERT_TRUE(fds.ok());
  EXPECT_FALSE(next_.MapOf(getpid(), *fds).ok());
  SnapshotSlots alone;
  alone.Reset({{{0, 1}}, {{0, 1}}, {1}});
  EXPECT_FALSE(alone.Share().ok()) << "its memory is its own";
}

TEST(BlockTest, GrowsWithItsBytesUnlessItIsMapped) {
  constexpr size_t kLarge = 3 << 20;
  for (const bool shared : {false, true}) {
    SCOPED_TRACE(shared);
    Block block = shared ? Block::Shared(5000) : Block::Of(5000);
    block.data()[4999] = 'a';
    const int fd = block.fd();
    ASSERT_TRUE(block.Grow(kLarge));
    EXPECT_EQ(block.size(), kLarge);
    EXPECT_EQ(block.data()[4999], 'a');
    EXPECT_EQ(block.fd(), fd);
    block.data()[kLarge - 1] = 'z';
    EXPECT_TRUE(block.Grow(10));
    EXPECT_EQ(block.size(), kLarge);
    if (shared) {
      EXPECT_FALSE(Block::MapOf(getpid(), fd, kLarge).Grow(2 * kLarge));
    }
  }
  EXPECT_FALSE(Block().Grow(1));
}

}  // namespace
}  // namespace rewire::state
