// How much of what is sent waits in the kernel where the other end is near.
#pragma once

#include <cstdint>
#include <optional>

namespace rewire::net {

// Bytes for SO_SNDBUF, by TCP's smallest round trip in microseconds; none: as the kernel likes.
//
// The kernel lets some MiB wait, which fills long ways. On the way to the same machine this has
// two speeds: a sender that is a little ahead fills the queue, what waits there falls out of the
// caches, and the receiver, who then reads it from memory, stays behind. 256 KiB stay in a cache,
// and each 10 us, the most that this is done for, they are 26 GB/s.
[[nodiscard]] std::optional<int> SendBufferOf(uint32_t round_trip_us);

// Whether more may wait in it by now.
[[nodiscard]] bool SendQueueIsLong(int fd);

// Sets that for a connected TCP socket. False: its way has not been seen to be short. What cannot
// be asked stays as it is.
[[nodiscard]] bool BoundSendQueue(int fd);

}  // namespace rewire::net
