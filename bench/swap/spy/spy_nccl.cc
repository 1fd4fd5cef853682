// A libnccl.so.2 between Rewire and NCCL. It forwards every function to the library that
// SWAP_SPY_NCCL names. For each operation of the program it appends to the file
// SWAP_SPY_RECORDS.PID which generation the operation reached (SeenOperation). So `./dev bench swap
// --mode` does not have to trust Rewire's own counters. A generation that is made while another is
// destroyed is recorded too, because NCCL has hung there (2.31.2 mended one case). Of an
// all-to-all, one send and one receive are recorded, because all of them are one group.
// Thread-safe.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "bench/swap/spy/current_operation.h"
#include "reconfig/base/hash.h"
#include "rewire_nccl_api.h"

// Parameters have the names of the function table, whether used or not.
#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace {

using rewire::bench::CurrentOperation;
using rewire::bench::SeenOperation;

const char* VariableOf(const char* name) {
  const char* const value = std::getenv(name);
  if (value != nullptr) return value;
  std::fprintf(stderr, "spy: %s is not set\n", name);
  std::abort();
}

class Spy {
 public:
  Spy() : nccl_(dlopen(VariableOf("SWAP_SPY_NCCL"), RTLD_NOW | RTLD_LOCAL)) {
    if (nccl_ == nullptr) {
      std::fprintf(stderr, "spy: %s\n", dlerror());
      std::abort();
    }
    const std::string path =
        std::string(VariableOf("SWAP_SPY_RECORDS")) + "." + std::to_string(getpid());
    records_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    current_ = reinterpret_cast<decltype(current_)>(dlsym(RTLD_DEFAULT, "swap_current_operation"));
  }

  // Returns nullptr for a function that the real library does not have.
  void* Find(const char* name) { return dlsym(nccl_, name); }

  void Made(ncclComm_t comm, const ncclUniqueId& id) {
    const uint64_t name = rewire::ContentHash(id.internal, sizeof id.internal, 0) | 1;
    const std::lock_guard lock(mutex_);
    generations_[comm] = name;
  }

  void Saw(ncclComm_t comm, const void* buffer) {
    const CurrentOperation* const current = current_ == nullptr ? nullptr : current_();
    if (current == nullptr || buffer == nullptr) return;
    if (buffer != current->input && buffer != current->output) return;
    SeenOperation seen;
    seen.communicator = current->communicator;
    seen.rank = static_cast<uint16_t>(current->rank);
    seen.receives = buffer == current->output ? 1 : 0;
    seen.index = current->index;
    {
      const std::lock_guard lock(mutex_);
      const auto found = generations_.find(comm);
      if (found != generations_.end()) seen.generation = found->second;
    }
    Write(seen);
  }

  void BeginDestroy() {
    ++destroying_;
    ++destroys_begun_;
  }
  void EndDestroy() { --destroying_; }
  // BeginMake returns the value for EndMake.
  [[nodiscard]] uint64_t BeginMake() const {
    return destroying_ > 0 ? kOverlaps : destroys_begun_.load();
  }
  void EndMake(uint64_t begun) {
    if (begun != kOverlaps && begun == destroys_begun_) return;
    SeenOperation seen;
    seen.communicator = rewire::bench::kMadeBesideDestroy;
    Write(seen);
  }

 private:
  static constexpr uint64_t kOverlaps = UINT64_MAX;

  void Write(const SeenOperation& seen) const {
    if (write(records_, &seen, sizeof seen) != sizeof seen) std::abort();
  }

  void* const nccl_;
  int records_ = -1;
  const CurrentOperation* (*current_)() = nullptr;
  std::mutex mutex_;
  std::map<ncclComm_t, uint64_t> generations_;
  std::atomic<uint64_t> destroying_{0}, destroys_begun_{0};
};

Spy& TheSpy() {
  static auto* const spy = new Spy;
  return *spy;
}

template <typename T, typename... Types>
constexpr bool kHas = (std::is_same_v<T, Types> || ...);

// Returns the first pointer of the arguments: the buffer of every operation.
template <typename First, typename... Others>
const void* BufferOf(First first, Others... /*others*/) {
  if constexpr (std::is_pointer_v<First> && !std::is_function_v<std::remove_pointer_t<First>>) {
    return first;
  } else {
    return nullptr;
  }
}

template <typename... Types>
void Before(const std::tuple<Types...>& arguments) {
  // Every operation has a communicator and a stream.
  if constexpr (kHas<ncclComm_t, Types...> && kHas<cudaStream_t, Types...>) {
    TheSpy().Saw(std::get<ncclComm_t>(arguments),
                 std::apply([](auto... each) { return BufferOf(each...); }, arguments));
  }
}

template <typename... Types>
void After(const std::tuple<Types...>& arguments) {
  if constexpr (kHas<ncclUniqueId, Types...> && kHas<ncclComm_t*, Types...>) {
    ncclComm_t* const made = std::get<ncclComm_t*>(arguments);
    if (made != nullptr && *made != nullptr) {
      TheSpy().Made(*made, std::get<ncclUniqueId>(arguments));
    }
  }
}

// Calls `call` and records what happens beside it: makes and destroys of generations.
template <typename Call>
auto Watched(std::string_view function, Call&& call) {
  const bool makes = function == "CommInitRankConfig";
  const bool destroys = function == "CommDestroy";
  const uint64_t begun = makes ? TheSpy().BeginMake() : 0;
  if (destroys) TheSpy().BeginDestroy();
  const auto answer = call();
  if (destroys) TheSpy().EndDestroy();
  if (makes) TheSpy().EndMake(begun);
  return answer;
}

template <typename Call, typename... Types>
auto Forward(std::string_view function, const std::tuple<Types...>& arguments, Call&& call) {
  Before(arguments);
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
  } else {
    const auto answer = Watched(function, std::forward<Call>(call));
    After(arguments);
    return answer;
  }
}

}  // namespace

extern "C" {

#define REWIRE_NCCL_FUNCTION(result, name, since, parameters, arguments)                          \
  __attribute__((visibility("default"))) result pnccl##name parameters {                          \
    static auto* const real =                                                                     \
        reinterpret_cast<result(*) parameters>(TheSpy().Find("pnccl" #name));                     \
    if (real == nullptr) std::abort();                                                            \
    return Forward(#name, std::make_tuple arguments, [&]() -> result { return real arguments; }); \
  }                                                                                               \
  __attribute__((visibility("default"), weak, alias("pnccl" #name))) result nccl##name parameters;
#include "rewire_nccl_functions.inc"
#undef REWIRE_NCCL_FUNCTION
}
