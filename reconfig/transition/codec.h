// The bytes of messages.h: docs/protocol.md has the layouts.
//
//   frame = u32 length (of all that follows it) | u16 version | u16 type | payload
//
// Little-endian, at most kMaxFrameBytes with the length field, every count checked against the
// bytes that are there before anything is allocated. Decoding takes any bytes from anyone: it gives
// a message or an error that names what is wrong. Pure functions; FrameBuffer belongs to one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/transition/messages.h"

namespace rewire {

inline constexpr uint16_t kProtocolVersion = 5;
inline constexpr size_t kMaxFrameBytes = 1 << 20;

// The whole frame, length field included. A message that would be longer than kMaxFrameBytes is an
// error of the caller's (a world of more than about 10000 members): it gives kInvalidArgument.
absl::StatusOr<std::string> Encode(const Message& message);
// One whole frame, nothing more.
absl::StatusOr<Message> Decode(std::string_view frame);

// "Prepare": for logs and counters.
std::string_view MessageName(const Message& message);

// Cuts a byte stream into frames.
//   buffer.Append(bytes);  while (auto m = buffer.Next()) { if (!m->ok()) close; ... }
class FrameBuffer {
 public:
  void Append(std::string_view bytes) { bytes_.append(bytes); }
  // The next message; nothing when a whole frame is not there yet. After an error every further
  // call gives the same error: the stream cannot be trusted again.
  std::optional<absl::StatusOr<Message>> Next();
  [[nodiscard]] size_t pending_bytes() const { return bytes_.size() - begin_; }

 private:
  std::string bytes_;
  size_t begin_ = 0;
  absl::Status error_;
};

}  // namespace rewire
