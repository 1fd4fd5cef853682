#include "tests/simgpu/cuda/graph.h"

namespace simgpu {

CUgraph NewGraph() {
  const auto graph = NewHandle<CUgraph>();
  State().graphs[graph];
  return graph;
}

std::optional<GraphEnd> TakeGraph(CUgraph handle) {
  auto graph = State().graphs.extract(handle);
  if (graph.empty()) return std::nullopt;
  std::vector<UserObject> ended;
  for (const auto& [object, references] : graph.mapped()) {
    const auto found = State().user_objects.find(object);
    found->second.references -= references;
    if (found->second.references > 0) continue;
    ended.push_back(found->second);
    State().user_objects.erase(found);
  }
  return GraphEnd(std::move(ended));
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_EXPORT CUresult cuGraphDestroy(CUgraph graph) noexcept {
  std::optional<GraphEnd> end;  // ends without the lock
  SIMGPU_ENTER();
  end = TakeGraph(graph);
  return end.has_value() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_EXPORT CUresult cuUserObjectCreate(CUuserObject* object, void* argument, CUhostFn destroy,
                                          unsigned int references, unsigned int flags) noexcept {
  SIMGPU_ENTER();
  if (object == nullptr || destroy == nullptr || references == 0 ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *object = NewHandle<CUuserObject>();
  State().user_objects[*object] = {destroy, argument, references};
  return CUDA_SUCCESS;
}

// flags: 0 adds references; CU_GRAPH_USER_OBJECT_MOVE takes those of the caller.
SIMGPU_EXPORT CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object,
                                               unsigned int references,
                                               unsigned int flags) noexcept {
  SIMGPU_ENTER();
  const auto found = State().graphs.find(graph);
  const auto known = State().user_objects.find(object);
  if (found == State().graphs.end() || known == State().user_objects.end() || references == 0 ||
      flags > CU_GRAPH_USER_OBJECT_MOVE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags == 0) known->second.references += references;
  found->second[object] += references;
  return CUDA_SUCCESS;
}
