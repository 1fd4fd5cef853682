// The path of a child's output: pipes, prefixed lines, and a stream that may be slow or broken.
#include "reconfig/control/launcher/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace rewire::control {
namespace {

TEST(LinePrefixTest, PrintsWholeLinesForAnyPieces) {
  const std::string text = "one\n\ntwo\nlast";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    LinePrefix lines("[x] ");
    std::string out;
    for (size_t at = 0; at < text.size(); at += piece) {
      lines.Take(std::string_view(text).substr(at, piece), &out);
      EXPECT_TRUE(out.empty() || out.back() == '\n');
    }
    EXPECT_EQ(out, "[x] one\n[x] \n[x] two\n");
    lines.End(&out);
    lines.End(&out);
    EXPECT_EQ(out, "[x] one\n[x] \n[x] two\n[x] last\n");
  }
}

TEST(LinePrefixTest, BreaksLongLines) {
  LinePrefix lines("");
  std::string out;
  lines.Take(std::string(2 * LinePrefix::kLongest + 5, 'x'), &out);
  EXPECT_EQ(out.size(), 2 * (LinePrefix::kLongest + 1));
  lines.End(&out);
  EXPECT_EQ(std::count(out.begin(), out.end(), 'x'), 2 * LinePrefix::kLongest + 5);
}

TEST(OutputTest, DropsOutputOnAFullDiskAndReportsItOnce) {
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  Output out(full.get());
  for (int i = 0; i < 3; ++i) {
    out.Add("text");
    out.WritePiece();
    EXPECT_FALSE(out.broken());
    EXPECT_FALSE(out.pending());
    EXPECT_EQ(out.TakeError(), i == 0 ? ENOSPC : 0);
  }
}

TEST(OutputTest, WritesPieceThatFitsPipeAndDetectsItsEnd) {
  signal(SIGPIPE, SIG_IGN);
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  Output out(fds[1]);
  out.Add(std::string(Output::kFull + 10000, 'x'));
  EXPECT_TRUE(out.full());
  out.WritePiece();
  std::string got(2 * Output::kPiece, 0);
  EXPECT_EQ(read(fds[0], got.data(), got.size()), ssize_t{Output::kPiece});
  close(fds[0]);
  out.WritePiece();
  EXPECT_TRUE(out.broken());
  EXPECT_FALSE(out.pending());
  EXPECT_FALSE(out.full());
  close(fds[1]);
  signal(SIGPIPE, SIG_DFL);
}

TEST(ForwardedPipeTest, PutsThePrefixBeforeEachLine) {
  Output to{1};
  UniqueFd child;
  absl::StatusOr<ForwardedPipe> pipe = ForwardedPipe::Make("[x] ", &to, &child);
  ASSERT_TRUE(pipe.ok()) << pipe.status();
  EXPECT_TRUE(pipe->wanted());
  ASSERT_EQ(write(child.get(), "one\ntw", 6), 6);
  pipe->Read();
  EXPECT_EQ(*to.buffer(), "[x] one\n");
  pipe->Read();  // empty: does not block
  ASSERT_EQ(write(child.get(), "o", 1), 1);
  child.reset();
  pipe->ReadToTheEnd();
  EXPECT_EQ(*to.buffer(), "[x] one\n[x] two\n");
  EXPECT_FALSE(pipe->wanted());
}

TEST(ForwardedPipeTest, EndsWhileAnotherProcessHoldsPipe) {
  Output to{1};
  UniqueFd child;
  absl::StatusOr<ForwardedPipe> pipe = ForwardedPipe::Make("[x] ", &to, &child);
  ASSERT_TRUE(pipe.ok()) << pipe.status();
  ASSERT_EQ(write(child.get(), "last", 4), 4);
  pipe->ReadToTheEnd();
  EXPECT_EQ(*to.buffer(), "[x] last\n");
  EXPECT_FALSE(pipe->wanted());
}

}  // namespace
}  // namespace rewire::control
