// RDMA devices and their ports: descriptions, the ports' addresses (GIDs), and the choice of the
// address that a queue pair uses. For the drivers and for all users of RDMA. Values are
// thread-compatible; functions are pure and thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

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

enum class LinkLayer : uint8_t { kUnknown, kInfiniBand, kEthernet };
enum class PortState : uint8_t { kDown, kStarting, kActive };

struct PortInfo {
  uint8_t number = 1;
  PortState state = PortState::kDown;
  LinkLayer link_layer = LinkLayer::kUnknown;
  uint32_t active_mtu = 0;  // bytes
  uint32_t speed_mbps = 0;  // width times speed, 0 if the device reports neither
  uint16_t lid = 0;         // InfiniBand's address on the subnet
  std::vector<GidEntry> gids;
  std::vector<uint16_t> pkeys;  // by index
};

struct DeviceInfo {
  std::string name;
  std::string pci_path;  // resolved in sysfs; empty for a software device
  uint64_t guid = 0;
  uint32_t max_queue_pairs = 0;
  uint32_t max_work_requests = 0;  // of one queue
  uint32_t max_segments = 0;       // of one work request
  uint32_t max_completions = 0;    // of one completion queue
  uint8_t max_reads = 0;           // RDMA READs outstanding at a responder
  std::vector<PortInfo> ports;
};

// Computes a link's speed in Mbit/s from the codes of the verbs' port attributes (IBTA PortInfo:
// LinkWidthActive, LinkSpeedActive). Returns 0 for an undefined code.
[[nodiscard]] uint32_t LinkSpeedMbps(uint8_t width_code, uint32_t speed_code);

struct GidWish {
  // The peer's choice. Only a row that can reach the peer qualifies (same type, same family,
  // link-local with link-local); among those, the longest common prefix wins.
  std::optional<GidEntry> peer;
  // Only rows of this network interface; 0: any interface.
  uint32_t interface = 0;
  // This side's choice before the table changed. The choice is kept, at its new index, while the
  // table has it, because the peer knows it.
  std::optional<GidEntry> previous;
};

// RoCE: v2 before v1; within a type IPv4, then other IPv6, then link-local; ties: the lowest index.
// InfiniBand: the first row. Returns nothing if no row qualifies. Indexes change with link flaps
// and new or removed addresses: read the table and choose again after every kGidChange and
// kPortActive.
[[nodiscard]] std::optional<GidEntry> ChooseGid(std::span<const GidEntry> table, LinkLayer link,
                                                const GidWish& wish);

}  // namespace rewire::rdma
