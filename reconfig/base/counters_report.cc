// ReportCounters() of counters.h. In a file of its own, because the library that NCCL opens calls
// only this function and must not get counters of its own, which nobody would read.
#include <dlfcn.h>

#include <string>

#include "reconfig/abi/core_file.h"
#include "reconfig/base/counters.h"
#include "reconfig/base/settings.h"

namespace rewire {

void ReportCounters(ReadCounters read) {
  if (Settings::Get().socket().empty()) return;
  Dl_info owner;
  if (dladdr(reinterpret_cast<const void*>(read), &owner) == 0) return;
  const std::string file(owner.dli_fname);
  const std::string core = file.substr(0, file.rfind('/') + 1) + kCoreFile;
  // Never closed, because librewire.so has threads.
  void* const library = dlopen(core.c_str(), RTLD_LAZY);
  if (library == nullptr) return;
  const auto add = reinterpret_cast<AddCounters>(dlsym(library, kAddCountersSymbol));
  if (add != nullptr) add(read);
}

}  // namespace rewire
