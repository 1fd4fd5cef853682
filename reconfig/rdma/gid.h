// The addresses of RDMA ports. Plain values, for everybody, on any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace rewire::rdma {

struct Gid {
  std::array<uint8_t, 16> bytes{};
  bool operator==(const Gid&) const = default;
  // An IPv4 address as a GID carries it: ::ffff:a.b.c.d.
  [[nodiscard]] static Gid OfIpv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d);
  [[nodiscard]] bool IsZero() const { return *this == Gid{}; }
  [[nodiscard]] bool IsIpv4() const;
  // fe80::/10: means something on one network segment only.
  [[nodiscard]] bool IsLinkLocal() const;
  // As an IPv6 address.
  [[nodiscard]] std::string Text() const;
};

enum class GidType : uint8_t { kInfiniBand, kRoceV1, kRoceV2 };

// A valid row of a port's table. Rows move: an index says nothing after a GID change.
struct GidEntry {
  uint32_t index = 0;
  Gid gid;
  GidType type = GidType::kInfiniBand;
  uint32_t interface = 0;  // the network interface's index, 0 when there is none
};

}  // namespace rewire::rdma
