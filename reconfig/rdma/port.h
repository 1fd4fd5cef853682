// Descriptions of an RDMA device and its ports, for all users. Thread-compatible values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reconfig/rdma/gid.h"

namespace rewire::rdma {

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

}  // namespace rewire::rdma
