#include "tests/simgpu/nccl/plugin.h"

#include <dlfcn.h>
#include <strings.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tests/simgpu/nccl/env.h"
#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/net_plugin.h"
#include "tests/simgpu/nccl/plugin_library.h"
#include "tests/simgpu/nccl/socket_net.h"
#include "tests/simgpu/nccl/tuner.h"
#include "tests/simgpu/nccl/tuner_plugin.h"

namespace simnccl {
namespace {

// NCCL 2.28 has this bug (NVIDIA/nccl#1978): when the last communicator is freed, the whole
// record of a plugin is cleared, including its name. The next communicator finds at most
// libnccl-net.so.
bool ForgetsNames(int version) { return version / 100 == 228; }

struct External {
  std::string name;
  void* library = nullptr;
  std::shared_ptr<Net> net;
  bool tried = false;
  bool disabled = false;  // another external plugin was assigned first
  int users = 0;
};

struct Plugins {
  rewire::Mutex mutex;
  bool parsed REWIRE_GUARDED_BY(mutex) = false;
  std::vector<External> externals REWIRE_GUARDED_BY(mutex);
};

Plugins& All() {
  static auto* plugins = new Plugins;
  return *plugins;
}

void Parse(Plugins* plugins) REWIRE_REQUIRES(plugins->mutex) {
  if (std::exchange(plugins->parsed, true)) return;
  std::string list = EnvText("NCCL_NET_PLUGIN", "libnccl-net.so");
  if (strcasecmp(list.c_str(), "none") == 0) return;
  constexpr size_t kMaxExternals = 14;
  for (size_t start = 0; start < list.size() && plugins->externals.size() < kMaxExternals;) {
    const size_t comma = std::min(list.find(',', start), list.size());
    if (comma > start) {
      External external;
      external.name = list.substr(start, comma - start);
      plugins->externals.push_back(std::move(external));
    }
    start = comma + 1;
  }
}

void Load(External* e, int version) {
  if (std::exchange(e->tried, true)) return;
  e->library = OpenPlugin(e->name, "libnccl-net-");
  if (e->library == nullptr) {
    Info("NET/Plugin: could not find %s", e->name.c_str());
    return;
  }
  using Adapt = std::shared_ptr<Net> (*)(void*);
  constexpr std::pair<int, Adapt> kAdapters[] = {
      {12, AdaptNetV12}, {11, AdaptNetV11}, {10, AdaptNetV10}, {9, AdaptNetV9}, {8, AdaptNetV8}};
  const AbiRange range = NetVersions(version);
  for (const auto& [abi, adapt] : kAdapters) {
    if (abi > range.newest || abi < range.oldest) continue;
    const std::string symbol = "ncclNetPlugin_v" + std::to_string(abi);
    if (void* address = ::dlsym(e->library, symbol.c_str())) {
      e->net = adapt(address);
      Info("NET/Plugin: Loaded net plugin %s (v%d)", e->net->name().c_str(), abi);
      return;
    }
  }
  Info("NET/Plugin: %s has no symbol that this version accepts", e->name.c_str());
  ClosePlugin(std::exchange(e->library, nullptr));
}

bool NameFits(const ncclComm* comm, const std::string& name) {
  return comm->config.net_name.empty() ||
         strcasecmp(comm->config.net_name.c_str(), name.c_str()) == 0;
}

// Initialises the network for the communicator; false if the network has no device or fails.
bool Try(ncclComm* comm, const std::shared_ptr<Net>& net) {
  void* context = nullptr;
  const ncclResult_t result = net->Init(comm->hash, comm->config.traffic_class, &context);
  int devices = 0;
  NetProperties properties;
  if (result != ncclSuccess || net->Devices(&devices) != ncclSuccess || devices <= 0 ||
      net->GetProperties(comm->device % devices, &properties) != ncclSuccess) {
    // NCCL also finalises a plugin whose initialisation failed; plugins must survive the call.
    net->Finalize(context);
    return false;
  }
  comm->net = net;
  comm->net_context = context;
  comm->net_initialized = true;
  comm->net_device = comm->device % devices;
  comm->net_ptr_type = (properties.ptr_support & kNetPtrCuda) != 0 ? kNetPtrCuda : kNetPtrHost;
  Info("Using network %s", net->name().c_str());
  return true;
}

}  // namespace

ncclResult_t AssignNet(ncclComm* comm) {
  int64_t keeps_loaded = 0;
  SIMNCCL_TRY(EnvInt("NCCL_NET_PLUGIN_REF_COUNT", 0, 0, 1, &keeps_loaded));
  Plugins& plugins = All();
  rewire::MutexLock lock(&plugins.mutex);
  Parse(&plugins);
  for (External& e : plugins.externals) {
    if (e.disabled) continue;
    Load(&e, comm->version);
    if (e.net == nullptr || !NameFits(comm, e.net->name()) || !Try(comm, e.net)) continue;
    // The extra user keeps the plugin loaded.
    e.users += e.users == 0 ? 1 + static_cast<int>(keeps_loaded) : 1;
    for (External& other : plugins.externals) other.disabled = &other != &e;
    return ncclSuccess;
  }
  const auto socket = std::make_shared<SocketNet>();
  if (NameFits(comm, socket->name()) && Try(comm, socket)) return ncclSuccess;
  return Fail(ncclInvalidUsage, "Failed to initialize any NET plugin (NCCL_NET=%s)",
              comm->config.net_name.c_str());
}

void ReleaseNet(ncclComm* comm) {
  if (comm->net == nullptr) return;
  Plugins& plugins = All();
  rewire::MutexLock lock(&plugins.mutex);
  if (comm->net_initialized) comm->net->Finalize(comm->net_context);
  const std::shared_ptr<Net> net = std::move(comm->net);
  for (External& e : plugins.externals) {
    if (e.net != net || --e.users > 0) continue;
    ClosePlugin(e.library);
    const std::string name = ForgetsNames(comm->version) ? "libnccl-net.so" : e.name;
    e = External{};
    e.name = name;
  }
}

ncclResult_t AssignTuner(ncclComm* comm, int nodes) {
  const std::string name = EnvText("NCCL_TUNER_PLUGIN", "libnccl-tuner.so");
  if (strcasecmp(name.c_str(), "none") == 0) return ncclSuccess;
  void* library = OpenPlugin(name, "libnccl-tuner-");
  if (library == nullptr) {
    // The network plugin's library may also have a tuner.
    Plugins& plugins = All();
    rewire::MutexLock lock(&plugins.mutex);
    for (const External& e : plugins.externals) {
      if (e.net != nullptr && e.net == comm->net) library = OpenPlugin(e.name, "libnccl-net-");
    }
  }
  if (library == nullptr) return ncclSuccess;
  return MakeTuner(library, comm, nodes, &comm->tuner);
}

}  // namespace simnccl
