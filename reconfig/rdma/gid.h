// The addresses of RDMA ports. Thread-compatible values for all users.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace rewire::rdma {

struct Gid {
  std::array<uint8_t, 16> bytes{};
  bool operator==(const Gid&) const = default;
  // The GID form of an IPv4 address: ::ffff:a.b.c.d.
  [[nodiscard]] static Gid OfIpv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d);
  [[nodiscard]] bool IsZero() const { return *this == Gid{}; }
  [[nodiscard]] bool IsIpv4() const;
  // fe80::/10: valid on one network segment only.
  [[nodiscard]] bool IsLinkLocal() const;
  // Formats the GID as an IPv6 address.
  [[nodiscard]] std::string Text() const;
};

enum class GidType : uint8_t { kInfiniBand, kRoceV1, kRoceV2 };

// A valid row of a port's table. Rows move: an index is meaningless after a GID change.
struct GidEntry {
  uint32_t index = 0;
  Gid gid;
  GidType type = GidType::kInfiniBand;
  uint32_t interface = 0;  // the network interface's index, 0 when there is none
};

}  // namespace rewire::rdma
