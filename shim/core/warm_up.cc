#include "shim/core/warm_up.h"

#include "absl/strings/str_cat.h"

namespace rewire::shim {

namespace {

constexpr size_t kBytesPerClass = 3;
constexpr Collective kConnecting[] = {Collective::kAllReduce, Collective::kBroadcast,
                                      Collective::kReduce, Collective::kAllGather,
                                      Collective::kReduceScatter};
constexpr unsigned kMaxLogCount = 40;

ncclResult_t Issue(const NcclCalls& nccl, const UsageClass& c, ncclComm_t comm, void* scratch) {
  const size_t count = size_t{1} << c.log_count;
  const auto type = static_cast<ncclDataType_t>(c.type);
  switch (c.function) {
    case Collective::kAllReduce:
      return nccl.AllReduce(scratch, scratch, count, type, ncclSum, comm, nullptr);
    case Collective::kBroadcast:
      return nccl.Broadcast(scratch, scratch, count, type, 0, comm, nullptr);
    case Collective::kReduce:
      return nccl.Reduce(scratch, scratch, count, type, ncclSum, 0, comm, nullptr);
    case Collective::kAllGather:
      return nccl.AllGather(scratch, scratch, count, type, comm, nullptr);
    case Collective::kReduceScatter:
      return nccl.ReduceScatter(scratch, scratch, count, type, ncclSum, comm, nullptr);
    default:
      return ncclInvalidArgument;
  }
}

bool Connects(Collective function) {
  for (const Collective c : kConnecting) {
    if (c == function) return true;
  }
  return false;
}

}  // namespace

bool IsUnused(const VirtualCommunicator& comm) {
  for (const auto& function : comm.seen) {
    for (const std::atomic<uint64_t>& counts : function) {
      if (counts.load(std::memory_order_relaxed) != 0) return false;
    }
  }
  return true;
}

std::vector<UsageClass> UsageOf(const VirtualCommunicator& comm) {
  std::vector<UsageClass> usage;
  for (const Collective function : kConnecting) {
    for (unsigned type = 0; type < kSeenTypes; ++type) {
      const uint64_t seen =
          comm.seen[static_cast<unsigned>(function)][type].load(std::memory_order_relaxed);
      for (unsigned bit = 0; bit <= kMaxLogCount; ++bit) {
        if ((seen >> bit & 1) != 0) {
          usage.push_back({function, static_cast<uint8_t>(type), static_cast<uint8_t>(bit)});
        }
      }
    }
  }
  return usage;
}

std::string EncodeUsage(const std::vector<UsageClass>& usage) {
  std::string bytes;
  for (const UsageClass& c : usage) {
    bytes.push_back(static_cast<char>(c.function));
    bytes.push_back(static_cast<char>(c.type));
    bytes.push_back(static_cast<char>(c.log_count));
  }
  return bytes;
}

absl::StatusOr<std::vector<UsageClass>> DecodeUsage(std::string_view bytes) {
  if (bytes.size() % kBytesPerClass != 0) {
    return absl::InvalidArgumentError(absl::StrCat("decode usage classes: bytes=", bytes.size(),
                                                   ": must be a multiple of ", kBytesPerClass));
  }
  std::vector<UsageClass> usage;
  for (size_t i = 0; i < bytes.size(); i += kBytesPerClass) {
    const UsageClass c{static_cast<Collective>(static_cast<unsigned char>(bytes[i])),
                       static_cast<uint8_t>(bytes[i + 1]), static_cast<uint8_t>(bytes[i + 2])};
    if (!Connects(c.function) || c.type >= kSeenTypes || c.log_count > kMaxLogCount) {
      return absl::InvalidArgumentError(absl::StrCat(
          "decode usage class ", i / kBytesPerClass,
          ": function=", static_cast<unsigned>(c.function), " type=", c.type,
          " log2(count)=", c.log_count, ": out of range (a known function, type below ", kSeenTypes,
          ", log2(count) at most ", kMaxLogCount, ")"));
    }
    usage.push_back(c);
  }
  return usage;
}

ncclResult_t Simulate(const NcclCalls& nccl, const std::vector<UsageClass>& usage,
                      std::span<const ncclComm_t> comms, std::span<void* const> scratch) {
  if (usage.empty() || nccl.GroupSimulateEnd == nullptr) return ncclSuccess;
  ncclResult_t result = nccl.GroupStart();
  if (result != ncclSuccess) return result;
  for (size_t i = 0; i < comms.size() && result == ncclSuccess; ++i) {
    for (const UsageClass& c : usage) {
      result = Issue(nccl, c, comms[i], scratch[i]);
      if (result != ncclSuccess) break;
    }
  }
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  // This call closes the group even after an error.
  const ncclResult_t ended = nccl.GroupSimulateEnd(&info);
  return result != ncclSuccess ? result : ended;
}

}  // namespace rewire::shim
