// Net ABI v11 (since NCCL 2.28): the version that 2.28.9 uses.

#include "tests/simgpu/nccl/net_context_plugin.h"

namespace simnccl {
namespace {

struct Properties : NetPropertiesV9 {
  int maxMultiRequestSize;
};

}  // namespace

std::shared_ptr<Net> AdaptNetV11(void* symbol) {
  return std::make_shared<NetContextPlugin<Properties, 4>>(symbol);
}

}  // namespace simnccl
