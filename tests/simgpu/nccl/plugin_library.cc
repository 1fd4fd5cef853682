#include "tests/simgpu/nccl/plugin_library.h"

#include <dlfcn.h>
#include <strings.h>

#include "reconfig/base/mutex.h"

namespace simnccl {
namespace {

// Serialises dlopen and dlclose. The loader has its own lock, which ThreadSanitizer does not know.
// Without this mutex, ThreadSanitizer reports races between a library's initialisers and those of a
// closed library at the same addresses.
rewire::Mutex& LoaderMutex() {
  static auto* const mutex = new rewire::Mutex;
  return *mutex;
}

}  // namespace

void* OpenPlugin(const std::string& name, const char* prefix) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
  rewire::MutexLock lock(&LoaderMutex());
  // NCCL compares name.size() characters, so any prefix of STATIC_PLUGIN means the program itself.
  if (strncasecmp(name.c_str(), "STATIC_PLUGIN", name.size()) == 0) {
    return ::dlopen(nullptr, kFlags);
  }
  if (void* library = ::dlopen(name.c_str(), kFlags)) return library;
  if (name.find('/') != std::string::npos) return nullptr;
  if (name.starts_with("lib") && name.ends_with(".so")) return nullptr;
  return ::dlopen((std::string(prefix) + name + ".so").c_str(), kFlags);
}

void ClosePlugin(void* library) {
  rewire::MutexLock lock(&LoaderMutex());
  ::dlclose(library);
}

AbiRange NetVersions(int nccl_version) {
  const int minor = nccl_version / 100 % 100;
  if (minor >= 30) return {6, 12};
  if (minor >= 28) return {6, 11};
  if (minor >= 26) return {6, 10};
  if (minor >= 24) return {5, 9};
  return {5, minor >= 20 ? 8 : 7};
}

AbiRange TunerVersions(int nccl_version) {
  const int minor = nccl_version / 100 % 100;
  if (minor >= 30) return {2, 6};
  if (minor >= 28) return {2, 5};
  if (minor >= 24) return {2, 4};
  if (minor >= 22) return {2, 3};
  return minor >= 21 ? AbiRange{2, 2} : AbiRange{1, 1};
}

}  // namespace simnccl
