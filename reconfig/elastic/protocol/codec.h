// The byte encoding of messages.h; docs/protocol.md has the layouts. For agent and participant.
//
//   frame = u32 length (of all that follows it) | u16 version | u16 type | payload
//
// Frames are little-endian and have at most kMaxFrameBytes with the length field. Every count is
// checked against the bytes present before anything is allocated. Decoding accepts any bytes from
// any peer and returns a message, or an error that names the fault. Pure and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

inline constexpr uint16_t kProtocolVersion = 13;
inline constexpr size_t kMaxFrameBytes = 1 << 20;

// Returns the whole frame, length field included. Returns kInvalidArgument for a message longer
// than kMaxFrameBytes, which is an error of the caller (a world of more than about 10000 members).
absl::StatusOr<std::string> Encode(const Message& message);
// Takes exactly one whole frame.
absl::StatusOr<Message> Decode(std::string_view frame);

// Returns the type's name, for example "Prepare", for logs and counters.
std::string_view MessageName(const Message& message);

}  // namespace rewire::elastic
