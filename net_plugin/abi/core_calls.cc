#include "net_plugin/abi/core_calls.h"

#include <dlfcn.h>

#include <atomic>
#include <string>

#include "reconfig/base/counters.h"
#include "reconfig/base/log.h"
#include "reconfig/base/mutex.h"
#include "reconfig/base/settings.h"

namespace rewire::net {
namespace {

constexpr int kNcclWarn = 2;
constexpr unsigned long kNcclNet = 16;  // NCCL's subsystem NET

std::atomic<const NetTable*> core{nullptr};
std::atomic<void*> process_context{nullptr};

Mutex& LoadMutex() {
  static auto* const mutex = new Mutex;
  return *mutex;
}

std::string OwnFolder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&LoadCore), &info) == 0 || info.dli_fname == nullptr) {
    return ".";
  }
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

const NetTable* Open(std::string* why) {
  const std::string path = OwnFolder() + "/librewire-net.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *why = dlerror();
    return nullptr;
  }
  const auto start = reinterpret_cast<CoreStart>(dlsym(library, kCoreStartSymbol));
  const char* reason = "the library belongs to another build of Rewire";
  const NetTable* table = start == nullptr ? nullptr : start(kCoreAbiVersion, &reason);
  if (table == nullptr) {
    *why = path + ": " + reason;
    return nullptr;
  }
  ReportCounters(table->counters);
  return table;
}

}  // namespace

const NetTable* Core() noexcept { return core.load(std::memory_order_acquire); }

ncclResult_t LoadCore(Logger log) noexcept {
  if (Core() != nullptr) return ncclSuccess;
  MutexLock lock(&LoadMutex());
  if (Core() != nullptr) return ncclSuccess;
  static bool said = false;
  std::string why = Settings::Get().Error();
  if (why.empty() && Settings::Get().disable() != 0) why = "REWIRE_DISABLE=1";
  const NetTable* table = why.empty() ? Open(&why) : nullptr;
  if (table == nullptr) {
    if (!said) {
      LogLine(LogLevel::kError, "net plugin: %s", why.c_str());
      if (log != nullptr) {
        log(kNcclWarn, kNcclNet, "rewire", 0, "NET/rewire: load librewire-net.so: %s", why.c_str());
      }
    }
    said = true;
    return ncclSystemError;
  }
  core.store(table, std::memory_order_release);
  return ncclSuccess;
}

ncclResult_t InitProcess(int abi, Logger log) noexcept {
  if (const ncclResult_t r = LoadCore(log); r != ncclSuccess) return r;
  MutexLock lock(&LoadMutex());
  if (process_context.load() != nullptr) return ncclSuccess;
  void* context = nullptr;
  const ncclResult_t result = Core()->init(&context, 0, -1, abi, log);
  if (result == ncclSuccess) process_context.store(context);
  return result;
}

void* ProcessContext() noexcept { return process_context.load(); }

}  // namespace rewire::net
