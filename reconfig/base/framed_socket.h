// A stream socket that carries frames: a little-endian u32 length, then that number of bytes. The
// class passes whole frames with their length, the format of reconfig/elastic/protocol/codec.h.
//
// Both sides of the agent's Unix socket use the class. An event loop calls ReadReady / Next / Queue
// / Flush, which never block; a client calls Send / Receive, which block up to a deadline. A length
// above the limit fails before any allocation. Thread-compatible. Needs libc and libstdc++ only.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "reconfig/base/socket.h"

namespace rewire {

// The limit includes the length field.
inline constexpr size_t kFrameLimit = 1u << 20;

class FramedSocket {
 public:
  FramedSocket() = default;
  // Takes a non-blocking, connected descriptor. max_queue bounds Queue()'s unsent bytes.
  explicit FramedSocket(UniqueFd fd, size_t max_frame = kFrameLimit,
                        size_t max_queue = 16 * kFrameLimit)
      : fd_(std::move(fd)), max_frame_(max_frame), max_queue_(max_queue) {}

  [[nodiscard]] bool valid() const { return fd_.valid(); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  void Close() { fd_.reset(); }

  // Reads the available bytes (at most about 256 KiB per call). Returns kClosed at the end of the
  // stream; Next() still returns the frames that came before the end.
  SocketStatus ReadReady();
  // Returns the next whole frame, or nothing if none is complete. Sets *status to kOversize if the
  // stream has a bad length.
  std::optional<std::string> Next(SocketStatus* status);

  // Appends whole frames to the unsent ones. Returns kOversize if a frame is too long, or if too
  // many bytes wait because the reader is slow.
  SocketStatus Queue(std::string_view frame);
  // Writes as much as the socket accepts now.
  SocketStatus Flush();
  [[nodiscard]] bool WantsWrite() const { return sent_ < out_.size(); }

  // Queues the frame, and writes all waiting frames.
  SocketStatus Send(std::string_view frame, Time deadline);
  // Waits for the next frame; returns an error at the deadline.
  SocketStatus Receive(std::string* frame, Time deadline);

 private:
  UniqueFd fd_;
  size_t max_frame_ = kFrameLimit;
  size_t max_queue_ = 0;
  std::string in_;
  size_t taken_ = 0;  // bytes of in_ that Next() has returned
  std::string out_;
  size_t sent_ = 0;  // bytes of out_ already written
};

}  // namespace rewire
