#include "reconfig/elastic/participant/net_plugin.h"

#include <dlfcn.h>

#include "reconfig/base/counters.h"

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

std::vector<CounterValue> NetPlugin::Counters() const {
  const net::NetTable* const table = table_.load();
  if (table == nullptr) return {};
  std::vector<CounterValue> values(CounterTable().size());
  values.resize(table->counters(values.data(), values.size()));
  return values;
}

}  // namespace rewire
