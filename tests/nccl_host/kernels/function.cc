#include "tests/nccl_host/kernels/function.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace nccl_host {
namespace {

template <typename Value>
using Names = std::vector<std::pair<std::string_view, Value>>;

const Names<Collective>& Collectives() {
  static const auto* const names = new Names<Collective>{
      {"AllGather", Collective::kAllGather}, {"AllGatherV", Collective::kAllGatherV},
      {"AllReduce", Collective::kAllReduce}, {"Broadcast", Collective::kBroadcast},
      {"Reduce", Collective::kReduce},       {"ReduceScatter", Collective::kReduceScatter},
      {"SendRecv", Collective::kSendRecv}};
  return *names;
}

const Names<DeviceOp>& Ops() {
  static const auto* const names = new Names<DeviceOp>{{"Sum", DeviceOp::kSum},
                                                       {"Prod", DeviceOp::kProd},
                                                       {"MinMax", DeviceOp::kMinMax},
                                                       {"PreMulSum", DeviceOp::kPreMulSum},
                                                       {"SumPostDiv", DeviceOp::kSumPostDiv}};
  return *names;
}

const Names<ncclDataType_t>& Types() {
  static const auto* const names = new Names<ncclDataType_t>{
      {"i8", ncclInt8},       {"u8", ncclUint8},          {"i32", ncclInt32},
      {"u32", ncclUint32},    {"i64", ncclInt64},         {"u64", ncclUint64},
      {"f16", ncclFloat16},   {"f32", ncclFloat32},       {"f64", ncclFloat64},
      {"bf16", ncclBfloat16}, {"f8e4m3", ncclFloat8e4m3}, {"f8e5m2", ncclFloat8e5m2}};
  return *names;
}

const Names<bool>& Algorithms() {
  static const auto* const names = new Names<bool>{{"RING", false}, {"TREE", true}};
  return *names;
}

const Names<Protocol>& Protocols() {
  static const auto* const names =
      new Names<Protocol>{{"LL", kLL}, {"LL128", kLL128}, {"SIMPLE", kSimple}};
  return *names;
}

// Sets `value` to the value of the name's next word and removes the word.
template <typename Value>
bool Take(std::string_view* name, const Names<Value>& names, Value* value) {
  const std::string_view word = name->substr(0, name->find('_'));
  for (const auto& [known, known_value] : names) {
    if (known != word) continue;
    *value = known_value;
    name->remove_prefix(std::min(name->size(), word.size() + 1));
    return true;
  }
  return false;
}

bool Reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

}  // namespace

std::optional<Function> ParseFunction(std::string_view name) {
  constexpr std::string_view kPrefix = "ncclDevFunc_";
  Function function;
  function.name = name;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  if (!Take(&name, Collectives(), &function.collective)) return std::nullopt;
  if (function.collective == Collective::kSendRecv) return function;
  if (Reduces(function.collective) &&
      (!Take(&name, Ops(), &function.op) || !Take(&name, Types(), &function.type))) {
    return std::nullopt;
  }
  if (!Take(&name, Algorithms(), &function.tree) || !Take(&name, Protocols(), &function.protocol) ||
      !name.empty()) {
    return std::nullopt;
  }
  return function;
}

}  // namespace nccl_host
