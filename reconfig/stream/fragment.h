// The bytes on a stream connection: docs/stream.md has the layouts.
//
// Fixed sizes, little-endian, each with a check over itself, and every field bounded before it is
// used: decoding takes any bytes from anyone. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reconfig/transition/world.h"

namespace rewire {

inline constexpr size_t kFragmentBytes = 1 << 20;  // of state, at most
inline constexpr size_t kGreetingSize = 48;
inline constexpr size_t kHeaderSize = 64;
inline constexpr size_t kReplySize = 8;
inline constexpr size_t kMaxNameBytes = 256;

enum class Purpose : uint16_t {
  kTransition = 1,  // state for the next epoch
  kSnapshot = 2,    // a buddy copy, within the current epoch
  kNames = 3,       // one question: the unique id behind a name
};

// What a connection is about. Only who knows the secret of an epoch can speak in it.
struct StreamKey {
  Purpose purpose = Purpose::kTransition;
  Epoch epoch = 0;
  uint64_t secret = 0;
  auto operator<=>(const StreamKey&) const = default;
};

// The first bytes from the side that connects.
struct Greeting {
  StreamKey key;
  MemberId sender = 0;
  uint64_t incarnation = 0;
  bool operator==(const Greeting&) const = default;
};

struct FragmentHeader {
  Epoch epoch = 0;
  uint64_t secret = 0;
  uint64_t version = 0;  // of the state; 0 where the epoch says it all
  uint32_t tensor = 0;
  uint32_t bytes = 0;    // of state behind the header, 1 .. kFragmentBytes
  uint64_t offset = 0;   // in bytes, of the first byte in the logical tensor
  uint64_t content = 0;  // HashContent of the bytes at the offset
  bool operator==(const FragmentHeader&) const = default;
};

enum class Reply : uint32_t {
  kAccepted = 1,  // of a greeting
  kUnknown = 2,   // of a greeting: no such stream here, now; the connection is closed
  kPlaced = 3,    // of a fragment, in the order of fragments
  kRejected = 4,  // of a fragment: its bytes are not what they should be; closed
};

std::string EncodeGreeting(const Greeting& greeting);
std::optional<Greeting> DecodeGreeting(std::string_view bytes);
std::string EncodeHeader(const FragmentHeader& header);
std::optional<FragmentHeader> DecodeHeader(std::string_view bytes);
std::string EncodeReply(Reply reply);
std::optional<Reply> DecodeReply(std::string_view bytes);

}  // namespace rewire
