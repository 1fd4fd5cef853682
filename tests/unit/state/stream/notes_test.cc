// The notes of a transition, and their lists decoded from untrusted bytes.
#include "reconfig/state/stream/notes.h"

#include <gtest/gtest.h>

namespace rewire::state {
namespace {

TEST(CopyListTest, RefusesEveryTruncation) {
  const CopyContent content{1, 2, 3};
  const std::string contents = EncodeContents({&content, 1});
  const uint32_t tensor = 4;
  const std::string tensors = EncodeTensors({&tensor, 1});
  EXPECT_EQ(DecodeContents(contents)->at(0).content, 3u);
  EXPECT_EQ(DecodeTensors(tensors)->at(0), 4u);
  for (size_t n = 0; n < contents.size(); ++n) {
    EXPECT_FALSE(DecodeContents(contents.substr(0, n)).ok()) << n;
  }
  for (size_t n = 0; n < tensors.size(); ++n) {
    EXPECT_FALSE(DecodeTensors(tensors.substr(0, n)).ok()) << n;
  }
}

TEST(StreamNotesTest, TakesEachNoteOnce) {
  StreamNotes notes;
  EXPECT_FALSE(notes.Find(1, NoteKind::kPull));
  EXPECT_TRUE(notes.Take(1, NoteKind::kPull, std::string("ab")).ok());
  EXPECT_FALSE(notes.Take(1, NoteKind::kPull, std::string("cd")).ok());
  EXPECT_TRUE(notes.Take(2, NoteKind::kPull, std::string()).ok());
  EXPECT_EQ(notes.Find(1, NoteKind::kPull), "ab");
  EXPECT_EQ(notes.Wait(2, NoteKind::kPull, Now()).value(), "");
}

TEST(StreamNotesTest, WaitsUntilDeadlineOrCancel) {
  StreamNotes notes;
  EXPECT_TRUE(absl::IsDeadlineExceeded(notes.Wait(1, NoteKind::kReady, Now()).status()));
  notes.Cancel();
  EXPECT_TRUE(absl::IsCancelled(notes.Wait(1, NoteKind::kReady, Now() + seconds(20)).status()));
}

}  // namespace
}  // namespace rewire::state
