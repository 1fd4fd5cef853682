// A stream socket that carries frames: a little-endian u32 length, then that many bytes. A frame is
// always handed over whole, with its length, as reconfig/transition/codec.h makes and takes it.
//
// Used on the agent's Unix socket by both sides. An event loop calls ReadReady / Next / Queue /
// Flush, which never block; a client calls Send / Receive, which do, up to a deadline. A length
// above the limit fails before anything is allocated for it. One thread. libc and libstdc++ only.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "reconfig/base/socket.h"

namespace rewire {

// With the length field.
inline constexpr size_t kFrameLimit = 1u << 20;

class FramedSocket {
 public:
  FramedSocket() = default;
  // Takes a non-blocking, connected descriptor. max_queue bounds what Queue() holds unsent.
  explicit FramedSocket(UniqueFd fd, size_t max_frame = kFrameLimit,
                        size_t max_queue = 16 * kFrameLimit)
      : fd_(std::move(fd)), max_frame_(max_frame), max_queue_(max_queue) {}

  [[nodiscard]] bool valid() const { return fd_.valid(); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  void Close() { fd_.reset(); }

  // Takes what the socket has (at most about 256 KiB a call). kClosed at the end of the stream:
  // frames that came before it are still to be had from Next().
  SocketStatus ReadReady();
  // The next whole frame; nothing when none is complete; kOversize in *status when the stream is
  // bad.
  std::optional<std::string> Next(SocketStatus* status);

  // Puts whole frames behind those that wait; kOversize when too long, or when too much waits (a
  // slow reader).
  SocketStatus Queue(std::string_view frame);
  // Writes what the socket takes now.
  SocketStatus Flush();
  [[nodiscard]] bool WantsWrite() const { return sent_ < out_.size(); }

  // Queues, and writes everything that waits.
  SocketStatus Send(std::string_view frame, Time deadline);
  // The next frame, or not ok.
  SocketStatus Receive(std::string* frame, Time deadline);

 private:
  UniqueFd fd_;
  size_t max_frame_ = kFrameLimit;
  size_t max_queue_ = 0;
  std::string in_;
  size_t taken_ = 0;  // bytes of in_ already given out
  std::string out_;
  size_t sent_ = 0;  // bytes of out_ already written
};

}  // namespace rewire
