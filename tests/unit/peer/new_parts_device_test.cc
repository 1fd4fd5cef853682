// The program's allocator is called with the tensor's device as the current one.
#include <gtest/gtest.h>

#include "reconfig/elastic/participant/new_parts.h"
#include "tests/unit/peer/device.h"

namespace rewire::elastic {
namespace {

CUcontext Current() {
  std::string error;
  CUcontext context = nullptr;
  CudaDriver::Get(&error)->CtxGetCurrent(&context);
  return context;
}

struct Seen {
  CUcontext context = nullptr;
  state::StatePlace memory;
};

void* Allocate(void* arg, const char* /*tensor*/, uint64_t bytes) {
  auto* const seen = static_cast<Seen*>(arg);
  seen->context = Current();
  seen->memory = state::DeviceMemory(seen->context, bytes);
  return seen->memory.data;
}

TEST(NewPartsDeviceTest, TheTensorsDeviceIsCurrentInAllocate) {
  const CUcontext context = state::UseFirstDevice();
  ASSERT_NE(context, nullptr);
  state::PlacedTensor tensor;
  tensor.shape = {"m", 12, 1, state::Division::kSharded, state::Change::kConstant};
  tensor.part = {0, 6};
  tensor.place = state::DeviceMemory(context, 6);
  Seen seen;
  ProgramState program;
  program.tensors = {tensor};
  program.callbacks.arg = &seen;
  program.callbacks.allocate = Allocate;
  program.layout = LayoutOf(program, 2).value();
  std::string error;
  CudaDriver::Get(&error)->CtxSetCurrent(nullptr);
  ASSERT_EQ(Current(), nullptr);
  NewParts parts([] { return false; });
  EXPECT_EQ(parts.Allocate(program, *LayoutOf(program, 1).value(), 0), absl::OkStatus());
  EXPECT_EQ(seen.context, context);
  ASSERT_EQ(parts.parts().size(), 1u);
  EXPECT_EQ(parts.parts()[0].place.data, seen.memory.data);
}

}  // namespace
}  // namespace rewire::elastic
