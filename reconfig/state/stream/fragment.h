// The wire format of a stream connection after its handshake; docs/stream.md has the layouts.
//
// Sizes are fixed, numbers are little-endian, and every field is checked before its use: decoding
// accepts any bytes. Pure and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reconfig/state/stream/handshake.h"
#include "reconfig/world/world.h"

namespace rewire::state {

inline constexpr size_t kFragmentBytes = 1 << 20;  // maximum state bytes
inline constexpr size_t kHeaderSize = 56;
inline constexpr size_t kReplySize = 8;
inline constexpr size_t kMaxNameBytes = 256;

// The subject of a connection. Only members that have the epoch's key can take part.
struct StreamKey {
  Purpose purpose = Purpose::kTransition;
  Epoch epoch = 0;
  Key secret;
  auto operator<=>(const StreamKey&) const = default;
};

struct FragmentHeader {
  Epoch epoch = 0;
  uint64_t version = 0;  // of the state; 0 where the epoch is enough
  uint32_t tensor = 0;
  uint32_t bytes = 0;    // state bytes after the header, 1 .. kFragmentBytes
  uint64_t offset = 0;   // in bytes, of the first byte in the logical tensor
  uint64_t content = 0;  // HashContent of the bytes at the offset
  bool operator==(const FragmentHeader&) const = default;
};

enum class Reply : uint32_t {
  kAccepted = 1,  // answers a proof: fragments, or the question, may follow
  kPlaced = 2,    // answers a fragment, in the order of fragments
  kRejected = 3,  // answers a fragment with wrong bytes; closed afterwards
};

std::string EncodeHeader(const FragmentHeader& header);
std::optional<FragmentHeader> DecodeHeader(std::string_view bytes);
std::string EncodeReply(Reply reply);
std::optional<Reply> DecodeReply(std::string_view bytes);

}  // namespace rewire::state
