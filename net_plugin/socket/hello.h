// How a connection begins, and where a listener is: docs/net.md. Pure; decoding takes any bytes.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "net_plugin/core_abi.h"

namespace rewire::net {

inline constexpr uint16_t kWireVersion = 4;

// What a listener tells, through NCCL, who shall connect to it. The rest of NCCL's 128 bytes is the
// connecting side's: it finds its own attempt again by `attempt`.
struct ListenAddress {
  sockaddr_storage address{};  // IPv4 or IPv6
  uint64_t incarnation = 0;    // of the listening process
  uint64_t listener = 0;
  uint64_t key = 0;      // known only to whom NCCL told
  uint64_t attempt = 0;  // 0: none yet
  uint64_t device = 0;   // which RDMA device listens; 0: sockets
  uint8_t ports = 0;     // of that device
  uint8_t others = 0;    // of its process, which stand in for these
};
void EncodeAddress(const ListenAddress& address, void* handle);
// Nothing when these are not the bytes of a handle of this version.
std::optional<ListenAddress> DecodeAddress(const void* handle);

// The first bytes on each connection, from the connecting side.
struct Hello {
  uint16_t version = kWireVersion;
  uint16_t streams = 0;  // of the link
  uint16_t index = 0;    // of this one
  uint64_t link = 0;     // random: equal for the streams of one link
  uint64_t incarnation = 0;
  uint64_t listener = 0;
  uint64_t key = 0;
  uint64_t job = 0;  // the job's secret; 0 without one
};
inline constexpr size_t kHelloBytes = 56;
inline constexpr uint16_t kMostStreams = 64;
std::string EncodeHello(const Hello& hello);
std::optional<Hello> DecodeHello(std::span<const char> bytes);

// The answer, on stream 0 when all streams have come.
enum class Welcome : uint32_t { kYes = 1, kVersion = 2, kStranger = 3 };
inline constexpr size_t kWelcomeBytes = 8;
std::string EncodeWelcome(Welcome welcome);
std::optional<Welcome> DecodeWelcome(std::span<const char> bytes);

}  // namespace rewire::net
