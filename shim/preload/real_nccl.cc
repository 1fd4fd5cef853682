#include "shim/preload/real_nccl.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "reconfig/base/cancellation.h"
#include "reconfig/base/log.h"
#include "reconfig/base/settings.h"
#include "shim/preload/library_search.h"
#include "shim/preload/unknown_functions.h"

namespace rewire::shim {

RealNccl real_functions;

std::atomic<Mode> mode{Mode::kUndecided};

Mode DecideMode() noexcept {
  const Mode decided = Settings::Get().disable() == 1 ? Mode::kOff : Mode::kOn;
  mode.store(decided, std::memory_order_relaxed);
  return decided;
}

namespace {

// The text about the failed search, for every later call that needs the library.
std::string* not_found = nullptr;

ncclResult_t Missing(const char* name, const char* since) noexcept {
  if (not_found != nullptr) {
    REWIRE_ERROR("%s: no NCCL library was found: %s", name, not_found->c_str());
    return ncclSystemError;
  }
  REWIRE_ERROR("%s: not in %s version=%d (needs NCCL %s)", name, real_functions.path,
               real_functions.version, since);
  return ncclInvalidUsage;
}

template <typename Result>
Result MissingResult(ncclResult_t why) {
  if constexpr (std::is_same_v<Result, ncclResult_t>) {
    return why;
  } else if constexpr (std::is_same_v<Result, const char*>) {
    return "not available: see the log";
  } else {
    return Result();
  }
}

// The fallback for a function that the library lacks, with one instance per function.
template <typename Signature, const char* const& kName, const char* const& kSince>
struct Absent;
template <typename Result, typename... Parameters, const char* const& kName,
          const char* const& kSince>
struct Absent<Result (*)(Parameters...), kName, kSince> {
  static Result Call(Parameters... /*ignored*/) noexcept {
    return MissingResult<Result>(Missing(kName, kSince));
  }
};

#define REWIRE_NCCL_FUNCTION(result, name, since, parameters, arguments) \
  constexpr const char* kNameOf##name = "nccl" #name;                    \
  constexpr const char* kSinceOf##name = since;
#include "rewire_nccl_functions.inc"
#undef REWIRE_NCCL_FUNCTION

void UseAbsent(RealNccl* real) {
#define REWIRE_NCCL_FUNCTION(result, name, since, parameters, arguments) \
  real->name = &Absent<decltype(real->name), kNameOf##name, kSinceOf##name>::Call;
#include "rewire_nccl_functions.inc"
#undef REWIRE_NCCL_FUNCTION
}

template <typename Function>
void Take(void* library, const char* name, Function* out) {
  // Profilers never interpose pncclX; only an unusual build has ncclX alone.
  void* found = dlsym(library, (std::string("p") + name).c_str());
  if (found == nullptr) found = dlsym(library, name);
  if (found != nullptr) *out = reinterpret_cast<Function>(found);
}

void UseLibrary(void* library, RealNccl* real) {
#define REWIRE_NCCL_FUNCTION(result, name, since, parameters, arguments) \
  Take(library, "nccl" #name, &real->name);
#include "rewire_nccl_functions.inc"
#undef REWIRE_NCCL_FUNCTION
}

// Opens the library at a path, or returns nullptr and sets *why.
void* OpenNccl(const std::string& path, std::string* why) {
  // No RTLD_DEEPBIND: NCCL must free with the allocator that its libc functions allocate with.
  const int scope = UnknownFunctionNeeded() ? RTLD_GLOBAL : RTLD_LOCAL;
  void* library = dlopen(path.c_str(), RTLD_NOW | scope);
  if (library == nullptr) {
    *why = dlerror();
    return nullptr;
  }
  const bool ours = dlsym(library, "rewire_preload_marker") != nullptr;
  if (!ours && dlsym(library, "pncclGetVersion") != nullptr) return library;
  *why = path + (ours ? ": the file is a copy of Rewire itself"
                      : ": not an NCCL library (no pncclGetVersion)");
  dlclose(library);
  return nullptr;
}

std::vector<std::string> Candidates(std::vector<std::string>* searched) {
  const std::string& given = Settings::Get().nccl_library();
  if (given.empty()) return FindNccl(searched);
  char real[4096];
  if (realpath(given.c_str(), real) == nullptr) {
    searched->push_back("REWIRE_NCCL_LIBRARY=" + given + ": " + strerror(errno));
    return {};
  }
  if (OwnPath() == real) {
    searched->push_back("REWIRE_NCCL_LIBRARY=" + given + ": the file is Rewire itself");
    return {};
  }
  return {real};
}

void WarnOfUnknownFunctions(void* library) {
  std::string names;
  for (const std::string& name : UnknownFunctions(library)) names += " " + name;
  if (names.empty()) return;
  REWIRE_WARN(
      "%s version=%d has functions that this version of Rewire does not know, and that must "
      "not get a communicator:%s",
      real_functions.path, real_functions.version, names.c_str());
}

void LoadOnce() {
  const PostponedCancellation postponed;
  UseAbsent(&real_functions);
  // NCCL closes its net plugin with the last communicator and then silently falls back to sockets
  // (nccl#1978). With this variable NCCL keeps the plugin.
  if (!Off()) setenv("NCCL_NET_PLUGIN_REF_COUNT", "1", 0);
  std::vector<std::string> searched;
  for (const std::string& path : Candidates(&searched)) {
    std::string why;
    void* const loaded = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    void* library = OpenNccl(path, &why);
    if (loaded != nullptr) dlclose(loaded);
    if (library == nullptr) {
      searched.push_back(why);
      continue;
    }
    UseLibrary(library, &real_functions);
    real_functions.path = strdup(path.c_str());
    real_functions.was_loaded = loaded != nullptr;
    real_functions.GetVersion(&real_functions.version);
    REWIRE_INFO("NCCL %d at %s", real_functions.version, real_functions.path);
    if (!Off()) WarnOfUnknownFunctions(library);
    return;
  }
  not_found = new std::string;
  for (const std::string& place : searched) *not_found += (not_found->empty() ? "" : "; ") + place;
  *not_found = "searched " + *not_found + " (set REWIRE_NCCL_LIBRARY to the library's path)";
}

}  // namespace

const RealNccl* Real() noexcept {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, LoadOnce);
  return &real_functions;
}

void ShareWithNewObjects() noexcept {
  if (real_functions.version == 0 || !UnknownFunctionNeeded()) return;
  void* const library = dlopen(real_functions.path, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  if (library != nullptr) dlclose(library);
}

bool RealNccl::Has(const char* wanted) const {
#define REWIRE_NCCL_FUNCTION(result, name, since, parameters, arguments)                     \
  if (strcmp(wanted, #name) == 0) {                                                          \
    return this->name != &Absent<decltype(this->name), kNameOf##name, kSinceOf##name>::Call; \
  }
#include "rewire_nccl_functions.inc"
#undef REWIRE_NCCL_FUNCTION
  return false;
}

}  // namespace rewire::shim
