#include "net_plugin/verbs/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

namespace rewire::net {
namespace {

class Side : public Control::Listener {
 public:
  absl::StatusOr<char*> PlaceOf(const FrameHeader& piece) override {
    if (piece.bytes > room.size()) return absl::DataLossError("no room");
    return room.data();
  }
  absl::StatusOr<bool> TakeFrame(const FrameHeader& header, std::string_view payload) override {
    taken.emplace_back(header.kind, std::string(payload));
    return header.kind != FrameKind::kClose;
  }
  void FrameSent(const FrameHeader& piece) override { sent += piece.bytes; }

  std::vector<char> room = std::vector<char>(4 << 20);
  std::vector<std::pair<FrameKind, std::string>> taken;
  size_t sent = 0;
};

class ControlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    a_stream_ = std::make_unique<Stream>(UniqueFd(fds[0]));
    b_stream_ = std::make_unique<Stream>(UniqueFd(fds[1]));
  }
  static FrameHeader Of(FrameKind kind) {
    FrameHeader header;
    header.kind = kind;
    return header;
  }

  std::unique_ptr<Stream> a_stream_;
  std::unique_ptr<Stream> b_stream_;
  Side a_side_;
  Side b_side_;
};

TEST_F(ControlTest, DeliversFramesAndPiecesInOrder) {
  Control a(a_stream_.get(), &a_side_);
  Control b(b_stream_.get(), &b_side_);
  std::vector<char> bytes(3 << 20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 1000);
  FrameHeader piece = Of(FrameKind::kPiece);
  piece.bytes = static_cast<uint32_t>(bytes.size());
  a.SendFrame(Of(FrameKind::kJoin), "offer");
  a.SendPiece(piece, bytes.data());
  a.SendFrame(Of(FrameKind::kReady));
  b.SendFrame(Of(FrameKind::kFenced), std::string(5000, 'r'));
  ASSERT_TRUE(a.Move().ok());
  EXPECT_FALSE(a.AllWritten());  // the kernel does not accept all of it at once
  EXPECT_EQ(a_side_.sent, 0u);
  for (int i = 0; i < 10'000 && !(a.Idle() && b.Idle()); ++i) {
    ASSERT_TRUE(b.Move().ok());
    ASSERT_TRUE(a.Move().ok());
  }
  EXPECT_EQ(a_side_.sent, bytes.size());
  ASSERT_EQ(b_side_.taken.size(), 3u);
  EXPECT_EQ(b_side_.taken[0].second, "offer");
  EXPECT_EQ(b_side_.taken[1].first, FrameKind::kPiece);
  EXPECT_EQ(b_side_.taken[2].first, FrameKind::kReady);
  b_side_.room.resize(bytes.size());
  EXPECT_TRUE(b_side_.room == bytes);
  ASSERT_EQ(a_side_.taken.size(), 1u);
  EXPECT_EQ(a_side_.taken[0].second, std::string(5000, 'r'));
}

TEST_F(ControlTest, ReadsNothingAfterClose) {
  Control a(a_stream_.get(), &a_side_);
  Control b(b_stream_.get(), &b_side_);
  a.SendFrame(Of(FrameKind::kClose));
  a.SendFrame(Of(FrameKind::kOpen));
  ASSERT_TRUE(a.Move().ok());
  ASSERT_TRUE(b.Move().ok());
  ASSERT_EQ(b_side_.taken.size(), 1u);
  FrameHeader next;
  ASSERT_TRUE(*b_stream_->ReadHeader(&next));
  EXPECT_EQ(next.kind, FrameKind::kOpen);
}

TEST_F(ControlTest, MalformedFrameEndsConnection) {
  Control b(b_stream_.get(), &b_side_);
  FrameHeader large = Of(FrameKind::kJoin);
  large.bytes = 1 << 20;
  ASSERT_TRUE(a_stream_->Write(&large, sizeof large, nullptr, 0).ok());
  EXPECT_EQ(b.Move().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ControlTest, PieceWithoutReceiveEndsConnection) {
  Control b(b_stream_.get(), &b_side_);
  FrameHeader piece = Of(FrameKind::kPiece);
  piece.bytes = 1 << 30;
  ASSERT_TRUE(a_stream_->Write(&piece, sizeof piece, nullptr, 0).ok());
  EXPECT_EQ(b.Move().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ControlTest, ReadsFramesSentBeforeDisconnect) {
  Control a(a_stream_.get(), &a_side_);
  Control b(b_stream_.get(), &b_side_);
  a.SendFrame(Of(FrameKind::kFinished));
  ASSERT_TRUE(a.Move().ok());
  a_stream_.reset();
  b.SendFrame(Of(FrameKind::kFenced));
  EXPECT_EQ(b.Move().code(), absl::StatusCode::kUnavailable);
  ASSERT_EQ(b_side_.taken.size(), 1u);
  EXPECT_EQ(b_side_.taken[0].first, FrameKind::kFinished);
}

TEST_F(ControlTest, ReportsDisconnectedPeer) {
  Control b(b_stream_.get(), &b_side_);
  a_stream_.reset();
  EXPECT_EQ(b.Move().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace rewire::net
