// The TCP connection of a link over RDMA: carries frames about the link's rails (its RDMA paths),
// and pieces of messages if no rail is left. Never blocks. Thread-compatible: owned by the thread
// that polls the connection.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net_plugin/socket/stream.h"
#include "net_plugin/socket/wire_format.h"

namespace rewire::net {

class Control {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // Returns the buffer for a piece. Null: no buffer yet; nothing more is read until there is one.
    virtual absl::StatusOr<char*> PlaceOf(const FrameHeader& piece) = 0;
    // Takes a whole frame; a piece's payload is already in its buffer. False: the
    // peer has ended this use of the link, and nothing more is read now.
    virtual absl::StatusOr<bool> TakeFrame(const FrameHeader& header, std::string_view payload) = 0;
    // The kernel has taken all bytes of a piece.
    virtual void FrameSent(const FrameHeader& piece) = 0;
  };

  Control(Stream* stream, Listener* listener) : stream_(stream), listener_(listener) {}

  void SendFrame(FrameHeader header, std::string payload = {});
  // `data` must stay valid until FrameSent(). Only one piece may be pending.
  void SendPiece(FrameHeader header, const char* data);
  // True if no frame waits to be written.
  [[nodiscard]] bool AllWritten() const { return frames_.empty(); }
  // True if also no frame is partly read.
  [[nodiscard]] bool Idle() const { return AllWritten() && !headed_; }
  // Writes and reads as much as possible now. Unavailable: the peer has closed the connection.
  absl::Status Move();

 private:
  struct Frame {
    FrameHeader header;
    std::string payload;
    const char* piece = nullptr;  // instead of the payload
    size_t sent = 0;              // bytes of header and payload
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
