#include "tests/simgpu/nccl/config.h"

#include <algorithm>
#include <cstring>

#include "tests/simgpu/nccl/env.h"
#include "tests/simgpu/nccl/error.h"

namespace simnccl {
namespace {

// Sets *target if the field is set; returns an error if the value is not allowed.
ncclResult_t Take(const char* name, int value, int min, int max, int* target) {
  if (value == NCCL_CONFIG_UNDEF_INT) return ncclSuccess;
  if (value < min || value > max) {
    return Fail(ncclInvalidArgument, "Invalid config %s attribute value %d", name, value);
  }
  *target = value;
  return ncclSuccess;
}

}  // namespace

ncclResult_t ReadConfig(const ncclConfig_t* config, const Config& inherited, Config* result) {
  *result = inherited;
  int blocking = inherited.blocking ? 1 : 0;
  if (config != nullptr) {
    ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
    // Older callers have a shorter struct, newer callers a longer one.
    size_t size;
    std::memcpy(&size, &config->size, sizeof(size));
    if (size < offsetof(ncclConfig_t, blocking) || size > 4096) {
      return Fail(ncclInvalidArgument,
                  "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    }
    std::memcpy(static_cast<void*>(&c), config, std::min(size, sizeof(c)));
    if (c.magic != NCCL_CONFIG_MAGIC) {
      return Fail(ncclInvalidArgument,
                  "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    }
    int ignored = 0;
    int split_share = inherited.split_share ? 1 : 0;
    int shrink_share = inherited.shrink_share ? 1 : 0;
    SIMNCCL_TRY(Take("blocking", c.blocking, 0, 1, &blocking));
    SIMNCCL_TRY(Take("cgaClusterSize", c.cgaClusterSize, 0, 8, &ignored));
    SIMNCCL_TRY(Take("minCTAs", c.minCTAs, 1, INT_MAX, &result->min_ctas));
    SIMNCCL_TRY(Take("maxCTAs", c.maxCTAs, 1, INT_MAX, &result->max_ctas));
    if (c.minCTAs != NCCL_CONFIG_UNDEF_INT && c.maxCTAs != NCCL_CONFIG_UNDEF_INT &&
        c.minCTAs > c.maxCTAs) {
      return Fail(ncclInvalidArgument, "Invalid config min/max channels attribute value %d/%d",
                  c.minCTAs, c.maxCTAs);
    }
    SIMNCCL_TRY(Take("splitShare", c.splitShare, 0, 1, &split_share));
    SIMNCCL_TRY(Take("trafficClass", c.trafficClass, 0, INT_MAX, &result->traffic_class));
    SIMNCCL_TRY(Take("collnetEnable", c.collnetEnable, 0, 1, &ignored));
    SIMNCCL_TRY(Take("CTAPolicy", c.CTAPolicy, 0, NCCL_CTA_POLICY_ZERO, &ignored));
    SIMNCCL_TRY(Take("shrinkShare", c.shrinkShare, 0, 1, &shrink_share));
    SIMNCCL_TRY(Take("nvlsCTAs", c.nvlsCTAs, 1, INT_MAX, &ignored));
    SIMNCCL_TRY(Take("nChannelsPerNetPeer", c.nChannelsPerNetPeer, 1, 32, &ignored));
    SIMNCCL_TRY(Take("nvlinkCentricSched", c.nvlinkCentricSched, 0, 1, &ignored));
    if (c.netName != nullptr) result->net_name = c.netName;
    if (c.commName != nullptr) result->comm_name = c.commName;
    result->split_share = split_share == 1;
    result->shrink_share = shrink_share == 1;
  }
  int64_t forced = blocking;
  SIMNCCL_TRY(EnvInt("NCCL_COMM_BLOCKING", blocking, 0, 1, &forced));
  result->blocking = forced == 1;
  const std::string net = EnvText("NCCL_NET");
  if (!net.empty()) result->net_name = net;
  return ncclSuccess;
}

}  // namespace simnccl
