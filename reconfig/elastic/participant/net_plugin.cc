#include "reconfig/elastic/participant/net_plugin.h"

#include <dlfcn.h>

namespace rewire {

void NetPlugin::Look() {
  if (table_.load() != nullptr) return;
  void* const library = dlopen("librewire-net.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return;
  const auto start = reinterpret_cast<net::CoreStart>(dlsym(library, net::kCoreStartSymbol));
  const char* why = nullptr;
  if (start != nullptr) table_.store(start(net::kCoreAbiVersion, &why));
  dlclose(library);  // the library stays loaded: it is linked with -z nodelete
}

NetCounts NetPlugin::Counts() const {
  const net::NetTable* const table = table_.load();
  net::NetCounters counters = {};
  if (table == nullptr || table->counters(&counters) != ncclSuccess) return {};
  return {counters.links_made, counters.links_reused, counters.unauthenticated,
          counters.rails_failed, counters.rails_back};
}

}  // namespace rewire
