// Limits the kernel's send queue of a TCP connection with a short round trip. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>

namespace rewire::net {

// Returns the bytes for SO_SNDBUF, given TCP's smallest round trip in microseconds; nothing: keep
// the kernel's default.
//
// By default the kernel queues several MiB, as long paths need. On loopback that queue makes the
// speed bistable: a sender that is slightly ahead fills the queue, the queued data leave the
// caches, and the receiver, which then reads from memory, stays behind. 256 KiB fits in the cache
// and, at the 10 us limit, still allows 26 GB/s.
[[nodiscard]] std::optional<int> SendBufferOf(uint32_t round_trip_us);

// True if the socket's send buffer is larger than the limit for a short round trip.
[[nodiscard]] bool SendQueueIsLong(int fd);

// Sets the limit for a connected TCP socket with a short round trip. Returns false, and changes
// nothing, if the round trip is long or unknown.
[[nodiscard]] bool BoundSendQueue(int fd);

}  // namespace rewire::net
