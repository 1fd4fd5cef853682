// Modules and their kernels. A module is PTX text. A kernel can be launched if its name is in the
// table below, which has its C++ function. Thread-safe.
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reconfig/state/stream/content.h"
#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/function.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/stream.h"
#include "tests/simgpu/nccl/narrow_float.h"

using namespace simgpu;

namespace {

// Arguments: (address, bytes, position of the first word, address of the sum).
void ContentHashKernel(const uint64_t* arguments) {
  const auto* data = reinterpret_cast<const void*>(arguments[0]);
  auto* const sum = reinterpret_cast<uint64_t*>(arguments[3]);
  const uint64_t hash = rewire::state::HashContent(data, arguments[1], arguments[2] * 8);
  __atomic_fetch_add(sum, hash, __ATOMIC_RELAXED);
}

bool MayHash(const uint64_t* arguments, const Device* device) REWIRE_REQUIRES(driver_mutex) {
  return IsAccessible(device, arguments[0], arguments[1], CU_MEM_ACCESS_FLAGS_PROT_READ) &&
         IsAccessible(device, arguments[3], sizeof(uint64_t), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

struct Float32Format {
  static float ToFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
  static uint32_t FromFloat(float value) { return std::bit_cast<uint32_t>(value); }
};

// Arguments: (table, sums, elements, address of shards, of slots, of staging). The table's format
// is in reconfig/moe/fsep/chunk_sum.h.
template <typename Element, typename Format>
void SumKernel(const uint64_t* arguments) {
  const auto* const table = reinterpret_cast<const uint64_t*>(arguments[0]);
  const auto at = [&](uint64_t place) {
    return reinterpret_cast<Element*>(arguments[3 + (place >> 62)] + (place << 2 >> 2));
  };
  for (uint64_t row = 0; row < arguments[1]; ++row) {
    const uint64_t* const sum = table + 3 * row;
    for (uint64_t i = 0; i < arguments[2]; ++i) {
      float value = -0.0f;
      for (uint64_t s = sum[1]; s < sum[2]; ++s) value += Format::ToFloat(at(table[s])[i]);
      at(sum[0])[i] = static_cast<Element>(Format::FromFloat(value));
    }
  }
}

// Checks every target and source in the table at the time of the launch.
template <typename Element>
bool MaySum(const uint64_t* arguments, const Device* device) REWIRE_REQUIRES(driver_mutex) {
  const auto* const table = reinterpret_cast<const uint64_t*>(arguments[0]);
  const auto may = [&](uint64_t place) REWIRE_REQUIRES(driver_mutex) {
    return place >> 62 < 3 &&
           IsAccessible(device, arguments[3 + (place >> 62)] + (place << 2 >> 2),
                        arguments[2] * sizeof(Element), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  };
  for (uint64_t row = 0; row < arguments[1]; ++row) {
    const uint64_t* const sum = table + 3 * row;
    if (!IsAccessible(device, arguments[0] + 24 * row, 24, CU_MEM_ACCESS_FLAGS_PROT_READ) ||
        sum[1] >= sum[2] || !may(sum[0]) ||
        !IsAccessible(device, arguments[0] + 8 * sum[1], 8 * (sum[2] - sum[1]),
                      CU_MEM_ACCESS_FLAGS_PROT_READ)) {
      return false;
    }
    for (uint64_t s = sum[1]; s < sum[2]; ++s) {
      if (!may(table[s])) return false;
    }
  }
  return true;
}

constexpr Kernel kKernels[] = {
    {"rewire_content_hash", 4, ContentHashKernel, MayHash},
    {"rewire_sum_f32", 6, SumKernel<uint32_t, Float32Format>, MaySum<uint32_t>},
    {"rewire_sum_bf16", 6, SumKernel<uint16_t, simnccl::Bfloat16Format>, MaySum<uint16_t>}};

struct Module {
  CUcontext context = nullptr;
  std::string text;
};

// The table is guarded by the driver's lock and never destroyed, like the driver's state.
auto& Modules() {
  static auto* const modules = new std::unordered_map<CUmodule, Module>;
  return *modules;
}

}  // namespace

SIMGPU_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) noexcept {
  SIMGPU_ENTER();
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  const std::string text(static_cast<const char*>(image));
  if (!text.starts_with(".version") && text.find("\n.version") == std::string::npos) {
    Say("cuModuleLoadData: only PTX text is simulated");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const auto handle = NewHandle<CUmodule>();
  Modules()[handle] = {context->handle, text};
  *module = handle;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuModuleUnload(CUmodule module) noexcept {
  SIMGPU_ENTER();
  if (Modules().erase(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  std::erase_if(Functions(), [&](const auto& entry) { return entry.second.module == module; });
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module,
                                           const char* name) noexcept {
  SIMGPU_ENTER();
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = Modules().find(module);
  if (found == Modules().end()) return CUDA_ERROR_INVALID_HANDLE;
  if (found->second.text.find(".entry " + std::string(name) + "(") == std::string::npos) {
    return CUDA_ERROR_NOT_FOUND;
  }
  for (const Kernel& kernel : kKernels) {
    if (kernel.name != name) continue;
    const auto handle = NewHandle<CUfunction>();
    Functions()[handle] = {module, &kernel};
    *function = handle;
    return CUDA_SUCCESS;
  }
  Say("cuModuleGetFunction(%s): no such kernel is simulated", name);
  return CUDA_ERROR_NOT_FOUND;
}
