// A member copies from another process's device memory, and detects data that differs from the
// owner's state at the boundary.
#include "reconfig/state/stream/pull.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "reconfig/state/stream/content.h"
#include "tests/unit/peer/device.h"

namespace rewire::state {
namespace {

using ::testing::HasSubstr;

constexpr MemberId kOwner = 5;
constexpr uint32_t kTensor = 3;

// The owner's process.
class Owner {
 public:
  Owner(size_t bytes, int pieces) {
    int in[2];
    int out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::string size = std::to_string(bytes);
    std::string mapped = std::to_string(pieces);
    char program[] = PEER_OWNER;
    char* argv[] = {program, size.data(), mapped.data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, PEER_OWNER, &actions, nullptr, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    stdin_ = in[1];
    stdout_ = fdopen(out[0], "r");
  }
  ~Owner() {
    close(stdin_);
    fclose(stdout_);
    int status = 0;
    waitpid(pid_, &status, 0);
    EXPECT_EQ(status, 0);
  }

  std::string Line() {
    char* line = nullptr;
    size_t room = 0;
    const ssize_t n = getline(&line, &room, stdout_);
    std::string text(line == nullptr ? "" : line, n > 0 ? static_cast<size_t>(n) - 1 : 0);
    free(line);
    return text;
  }
  std::string Offer() {
    const std::string hex = Line();
    std::string bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
      bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    return bytes;
  }
  void Put(int version) {
    const std::string line = std::to_string(version) + "\n";
    EXPECT_EQ(write(stdin_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    EXPECT_EQ(Line(), std::to_string(version));
  }

 private:
  pid_t pid_ = 0;
  int stdin_ = -1;
  FILE* stdout_ = nullptr;
};

// The parameter: number of pieces of the owner's mapped memory; 0: one allocation.
class PullTest : public ::testing::TestWithParam<int> {
 protected:
  // The size needs more than one turn, and is no multiple of a chunk or a page.
  static constexpr size_t kBytes = (65 << 20) + 4;
  // Position of the owner's part in the tensor.
  static constexpr uint64_t kBegins = 4096;

  void SetUp() override {
    context_ = UseFirstDevice();
    ASSERT_NE(context_, nullptr);
    target_ = DeviceMemory(context_, kBytes);
    offer_ = DecodePeerOffer(owner_.Offer()).value();
    ASSERT_EQ(offer_.tensors.size(), 1u);
  }
  // Accepts bytes [begin, end) of the owner's part.
  void TakeOn(uint64_t begin, uint64_t end, bool late = false) {
    const Runs to(0, end - begin);
    pull_.TakeFrom(kOwner, offer_,
                   {{kTensor,
                     kBegins + begin,
                     kBegins + end,
                     kOwner,
                     Runs(begin, end - begin),
                     {target_, to},
                     late}},
                   Soon());
  }
  // Expects that the target has the owner's bytes [begin, kBytes) of `version`.
  void ExpectCopied(uint64_t begin, int version) {
    std::vector<char> got(kBytes - begin);
    StateMemory memory;
    ASSERT_TRUE(memory.Read(target_, got.data(), got.size()).ok());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], OwnerByte(i + begin, version)) << i;
  }
  void Note(NoteKind kind, const std::string& bytes) {
    EXPECT_TRUE(notes_.Take(kOwner, kind, bytes).ok());
  }
  // Sends the note of an owner that has `version`, for [begin, end).
  void Contents(uint64_t begin, uint64_t end, int version, NoteKind kind = NoteKind::kContents) {
    std::vector<char> values;
    for (uint64_t i = begin; i < end; ++i) values.push_back(OwnerByte(i, version));
    const CopyContent content = {kTensor, kBegins + begin,
                                 HashContent(values.data(), values.size(), kBegins + begin)};
    Note(kind, EncodeContents({&content, 1}));
  }
  Time Soon() { return Now() + seconds(20); }

  Owner owner_{kBytes, GetParam()};
  CUcontext context_ = nullptr;
  StatePlace target_;
  PeerOffer offer_;
  StreamNotes notes_;
  Pull pull_{&notes_};
};

TEST_P(PullTest, CopiesStateAfterSourceIsReady) {
  TakeOn(8, kBytes);
  EXPECT_THAT(pull_.TensorsOf(kOwner), ::testing::ElementsAre(kTensor));
  owner_.Put(1);
  Note(NoteKind::kReady, "1");
  ASSERT_TRUE(pull_.Fetch(Soon()).ok());
  Contents(8, kBytes, 1);
  EXPECT_TRUE(pull_.Check(Soon()).ok());
  EXPECT_EQ(pull_.bytes(), kBytes - 8);
  ExpectCopied(8, 1);
}

TEST_P(PullTest, CopiesVolatileStateWhenSourceIsAtBoundary) {
  TakeOn(8, kBytes, true);
  EXPECT_THAT(pull_.TensorsOf(kOwner), ::testing::ElementsAre(kTensor));
  ASSERT_TRUE(pull_.Fetch(Now()).ok());  // does not wait
  EXPECT_EQ(pull_.bytes(), 0u);
  owner_.Put(2);
  EXPECT_TRUE(absl::IsDeadlineExceeded(pull_.Check(Now())));
}

TEST_P(PullTest, ComparesVolatileStateWithSource) {
  TakeOn(8, kBytes, true);
  owner_.Put(2);
  Contents(8, kBytes, 2, NoteKind::kLate);
  ASSERT_TRUE(pull_.Check(Soon()).ok());
  ExpectCopied(8, 2);
}

TEST_P(PullTest, DetectsSourceThatChangesAtTheBoundary) {
  TakeOn(0, kBytes, true);
  Contents(0, kBytes, 1, NoteKind::kLate);
  owner_.Put(2);
  EXPECT_FALSE(pull_.Check(Soon()).ok());
}

TEST_P(PullTest, DetectsSourceThatChangedAfterTheCopy) {
  TakeOn(0, kBytes);
  Note(NoteKind::kReady, "1");
  ASSERT_TRUE(pull_.Fetch(Soon()).ok());
  owner_.Put(2);
  Contents(0, kBytes, 2);
  pull_.SetNames({"a", "b", "c", "weights"});
  EXPECT_THAT(std::string(pull_.Check(Soon()).message()),
              HasSubstr("tensor weights of member 5 changed outside the update"));
}

TEST_P(PullTest, DetectsContentsWithoutTheCopy) {
  TakeOn(0, kBytes);
  Note(NoteKind::kReady, "1");
  ASSERT_TRUE(pull_.Fetch(Soon()).ok());
  Note(NoteKind::kContents, "no contents at all");
  EXPECT_FALSE(pull_.Check(Soon()).ok());
}

TEST_P(PullTest, WaitsForSourceUntilDeadline) {
  TakeOn(0, kBytes);
  EXPECT_TRUE(absl::IsDeadlineExceeded(pull_.Fetch(Now())));
}

TEST_P(PullTest, WaitsForContentsUntilDeadline) {
  TakeOn(0, kBytes);
  Note(NoteKind::kReady, "1");
  ASSERT_TRUE(pull_.Fetch(Soon()).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(pull_.Check(Now())));
}

TEST_P(PullTest, CopiesNothingAfterCancel) {
  TakeOn(0, kBytes);
  Note(NoteKind::kReady, "1");
  pull_.Cancel();
  EXPECT_TRUE(absl::IsCancelled(pull_.Fetch(Soon())));
  EXPECT_EQ(pull_.bytes(), 0u);
}

TEST_P(PullTest, SendsUnmappableMemoryAsBytes) {
  OfferedSegment& segment = offer_.tensors[0].segments.back();
  segment.handle.reserved[0] ^= 1;
  segment.index = 1000;
  TakeOn(0, kBytes);
  EXPECT_TRUE(pull_.TensorsOf(kOwner).empty());
}

TEST_P(PullTest, SendsOfferBeyondItsAllocationAsBytes) {
  offer_.tensors[0].segments[0].offset = uint64_t{1} << 40;
  TakeOn(0, kBytes);
  EXPECT_TRUE(pull_.TensorsOf(kOwner).empty());
}

TEST_P(PullTest, SendsOfferOfEndedMemberAsBytes) {
  offer_.server += "x";
  if (GetParam() == 0) offer_.tensors[0].segments.clear();
  TakeOn(0, kBytes);
  EXPECT_TRUE(pull_.TensorsOf(kOwner).empty());
}

TEST_P(PullTest, SendsSeparateSegmentsAsBytes) {
  std::vector<OfferedSegment>& segments = offer_.tensors[0].segments;
  segments.push_back(segments.back());
  segments.back().offset = 1;
  TakeOn(0, kBytes);
  EXPECT_TRUE(pull_.TensorsOf(kOwner).empty());
}

TEST_P(PullTest, SendsStateOutsideOfferAsBytes) {
  TakeOn(8, kBytes + 8);
  EXPECT_TRUE(pull_.TensorsOf(kOwner).empty());
}

TEST_P(PullTest, SendsSmallPiecesAsBytes) {
  TakeOn(0, 1024);
  EXPECT_TRUE(pull_.TensorsOf(kOwner).empty());
}

INSTANTIATE_TEST_SUITE_P(Memory, PullTest, ::testing::Values(0, 1, 3));

}  // namespace
}  // namespace rewire::state
