#include "tests/fakes/noop_nccl/noop_nccl.h"

#include <cstddef>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

// Parameters have the names of the function table, whether used or not.
#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace {

NoopControl control;
ncclComm_t* late_child = nullptr;
ncclWindow_t* late_window = nullptr;

template <typename Result>
Result Answer() {
  if constexpr (std::is_same_v<Result, ncclResult_t>) {
    return control.result.load(std::memory_order_relaxed);
  } else if constexpr (std::is_same_v<Result, const char*>) {
    return "noop";
  } else {
    return Result();
  }
}

void RememberBytes(std::span<const std::byte> bytes) {
  memcpy(control.bytes + control.size, bytes.data(), bytes.size());
  control.size += bytes.size();
}

template <typename... Values>
void Remember(const char* name, const std::tuple<Values...>& values) {
  control.name = name;
  control.size = 0;
  std::apply(
      [](const auto&... value) { (..., RememberBytes(std::as_bytes(std::span(&value, 1)))); },
      values);
}

std::atomic<NoopComm*> made{nullptr};

// Communicators stay in memory after their end, so that a test detects a call on an ended one.
ncclComm_t Make(int ranks, int rank, int device) {
  auto* comm = new NoopComm;
  comm->ranks = ranks;
  comm->rank = rank;
  comm->device = device;
  comm->next = made.load(std::memory_order_relaxed);
  while (!made.compare_exchange_weak(comm->next, comm, std::memory_order_release)) {
  }
  ++control.alive;
  return reinterpret_cast<ncclComm_t>(comm);
}
void End(ncclComm_t comm) {
  if (comm == nullptr) return;
  if (!reinterpret_cast<NoopComm*>(comm)->gone.exchange(true)) --control.alive;
}
NoopComm* Of(const ncclComm_t comm) { return reinterpret_cast<NoopComm*>(comm); }

struct Nothing {
#define REWIRE_NCCL_FUNCTION(result, name, since, parameters, arguments) \
  static result name parameters { return Answer<result>(); }
#include "rewire_nccl_functions.inc"
#undef REWIRE_NCCL_FUNCTION
};

// These functions store a result through a pointer; all other functions are those of Nothing.
struct Effects : Nothing {
  static ncclResult_t Child(const ncclComm_t parent, ncclComm_t* out, int ranks) {
    if (Answer<ncclResult_t>() > ncclSuccess && Answer<ncclResult_t>() != ncclInProgress) {
      return Answer<ncclResult_t>();
    }
    if (control.late_children) {
      late_child = out;
    } else {
      *out = Make(ranks, 0, parent == nullptr ? 0 : Of(parent)->device);
    }
    return Answer<ncclResult_t>();
  }
  static ncclResult_t GetVersion(int* version) {
    *version = 23099;
    return ncclSuccess;
  }
  static ncclResult_t GetUniqueId(ncclUniqueId* id) {
    static std::atomic<int> next{1};
    memset(id, 0, sizeof *id);
    const int number = next++;
    memcpy(id->internal, &number, sizeof number);
    return Answer<ncclResult_t>();
  }
  static ncclResult_t CommInitRank(ncclComm_t* comm, int n, ncclUniqueId, int rank) {
    *comm = Make(n, rank, 3);
    return Answer<ncclResult_t>();
  }
  static ncclResult_t CommInitRankConfig(ncclComm_t* comm, int n, ncclUniqueId, int rank,
                                         ncclConfig_t*) {
    *comm = Make(n, rank, 3);
    return Answer<ncclResult_t>();
  }
  static ncclResult_t CommInitRankScalable(ncclComm_t* comm, int n, int rank, int, ncclUniqueId*,
                                           ncclConfig_t*) {
    *comm = Make(n, rank, 3);
    return Answer<ncclResult_t>();
  }
  static ncclResult_t CommInitAll(ncclComm_t* comms, int n, const int*) {
    for (int i = 0; i < n; ++i) comms[i] = Make(n, i, i);
    return Answer<ncclResult_t>();
  }
  static ncclResult_t CommSplit(ncclComm_t comm, int color, int, ncclComm_t* out, ncclConfig_t*) {
    if (color != NCCL_SPLIT_NOCOLOR) return Child(comm, out, 2);
    *out = nullptr;
    return Answer<ncclResult_t>();
  }
  static ncclResult_t CommShrink(ncclComm_t comm, int*, int count, ncclComm_t* out, ncclConfig_t*,
                                 int) {
    return Child(comm, out, Of(comm)->ranks - count);
  }
  static ncclResult_t CommGrow(ncclComm_t comm, int ranks, const ncclUniqueId*, int,
                               ncclComm_t* out, ncclConfig_t*) {
    return Child(comm, out, ranks);
  }
  static ncclResult_t CommDestroy(ncclComm_t comm) {
    End(comm);
    return Answer<ncclResult_t>();
  }
  static ncclResult_t CommAbort(ncclComm_t comm) {
    End(comm);
    return Answer<ncclResult_t>();
  }
  static ncclResult_t CommGetAsyncError(ncclComm_t, ncclResult_t* error) {
    *error = control.async_error;
    return ncclSuccess;
  }
  static ncclResult_t CommCount(const ncclComm_t comm, int* out) {
    *out = Of(comm)->ranks;
    return ncclSuccess;
  }
  static ncclResult_t CommUserRank(const ncclComm_t comm, int* out) {
    *out = Of(comm)->rank;
    return ncclSuccess;
  }
  static ncclResult_t CommCuDevice(const ncclComm_t comm, int* out) {
    *out = Of(comm)->device;
    return ncclSuccess;
  }
  static ncclResult_t CommRegister(const ncclComm_t, void*, size_t, void** handle) {
    const auto result = Answer<ncclResult_t>();
    if (result == ncclSuccess) *handle = new int;
    return result;
  }
  static ncclResult_t CommDeregister(const ncclComm_t, void* handle) {
    delete static_cast<int*>(handle);
    return Answer<ncclResult_t>();
  }
  static ncclResult_t CommWindowRegister(ncclComm_t, void*, size_t, ncclWindow_t* window, int) {
    const auto result = Answer<ncclResult_t>();
    if (result == ncclSuccess) *window = reinterpret_cast<ncclWindow_t>(new int);
    if (result == ncclInProgress) late_window = window;
    return result;
  }
  static ncclResult_t CommWindowDeregister(ncclComm_t, ncclWindow_t window) {
    delete reinterpret_cast<int*>(window);
    return Answer<ncclResult_t>();
  }
  static ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void*, ncclDataType_t,
                                           ncclScalarResidence_t, ncclComm_t comm) {
    *op = static_cast<ncclRedOp_t>(ncclNumOps + 100 + Of(comm)->operators++);
    return Answer<ncclResult_t>();
  }
  static ncclResult_t AllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                                ncclComm_t comm, cudaStream_t) {
    auto& operations = Of(comm)->operations;
    operations.store(operations.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return Answer<ncclResult_t>();
  }
};

}  // namespace

extern "C" {

NoopControl* NoopNccl() { return &control; }

void NoopStoreWindow() { *late_window = reinterpret_cast<ncclWindow_t>(new int); }

void NoopStoreChild() {
  __atomic_store_n(std::exchange(late_child, nullptr), Make(2, 0, 3), __ATOMIC_RELEASE);
}

#define REWIRE_NCCL_FUNCTION(result, name, since, parameters, arguments)           \
  __attribute__((visibility("default"))) result pnccl##name parameters {           \
    control.calls.store(control.calls.load(std::memory_order_relaxed) + 1,         \
                        std::memory_order_relaxed);                                \
    if (auto* hook = control.on_call.load(std::memory_order_relaxed)) hook(#name); \
    if (control.record.load(std::memory_order_relaxed)) {                          \
      Remember(#name, std::make_tuple arguments);                                  \
    }                                                                              \
    if (!control.effects.load(std::memory_order_relaxed)) return Answer<result>(); \
    return Effects::name arguments;                                                \
  }                                                                                \
  __attribute__((visibility("default"), weak, alias("pnccl" #name))) result nccl##name parameters;
#include "rewire_nccl_functions.inc"
#undef REWIRE_NCCL_FUNCTION
}
