// The TCP connection of a link over RDMA: what the two sides say to each other about its rails, and
// the pieces that go over it when no rail is left. Nothing blocks. Of the thread that moves the
// connection.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net_plugin/socket/frame.h"
#include "net_plugin/socket/stream.h"

namespace rewire::net {

class Control {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // Where a piece belongs. Null: there is no room yet, and nothing is read meanwhile.
    virtual absl::StatusOr<char*> PlaceOf(const FrameHeader& piece) = 0;
    // A whole frame; a piece's payload is in its place. False: nothing more is of this use.
    virtual absl::StatusOr<bool> Hear(const FrameHeader& header, std::string_view payload) = 0;
    // A piece is with the kernel.
    virtual void Said(const FrameHeader& piece) = 0;
  };

  Control(Stream* stream, Listener* listener) : stream_(stream), listener_(listener) {}

  void Say(FrameHeader header, std::string payload = {});
  // Its bytes stay where they are until Said(). One at a time.
  void SayPiece(FrameHeader header, const char* data);
  // Nothing waits to be written.
  [[nodiscard]] bool Silent() const { return frames_.empty(); }
  // Nor is anything half read.
  [[nodiscard]] bool Quiet() const { return Silent() && !headed_; }
  // Writes and reads what goes now. Unavailable: the peer has gone.
  absl::Status Move();

 private:
  struct Frame {
    FrameHeader header;
    std::string payload;
    const char* piece = nullptr;  // instead of the payload
    size_t sent = 0;              // of header and payload
  };

  absl::Status Write();
  absl::Status Read();

  Stream* const stream_;
  Listener* const listener_;
  std::deque<Frame> frames_;
  bool headed_ = false;
  FrameHeader header_;
  std::string payload_;
  char* place_ = nullptr;
  size_t have_ = 0;
};

}  // namespace rewire::net
