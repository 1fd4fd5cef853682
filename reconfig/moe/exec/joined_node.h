// The processes of a node that balance together, as one of them has joined: the shared page, the
// memory of each process, and tested paths for copies. Thread-compatible; page() is as thread-safe
// as NodePage. The context of Allocate() must be current.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/moe/exec/copy_queue.h"
#include "reconfig/moe/exec/node_memory.h"
#include "reconfig/moe/exec/node_page.h"
#include "reconfig/moe/exec/shape.h"

namespace rewire::moe {

class JoinedNode {
 public:
  // Allocates the memory that this process lends. The page is there after Join().
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<JoinedNode>> Allocate(const CudaDriver& cuda,
                                                                            const NodeGroup& group,
                                                                            const Shape& shape);
  JoinedNode(const JoinedNode&) = delete;
  JoinedNode& operator=(const JoinedNode&) = delete;

  // Meets the other processes, maps their memory, and tests the path to each with copies on `out`
  // and a wait on `back`. After an error, the other processes know that this process has failed.
  [[nodiscard]] absl::Status Join(CopyQueue* out, CopyQueue* back, Time deadline);
  // Waits until every process has finished: the others may still write to the memory of this one.
  void Leave(Time deadline);

  [[nodiscard]] const CudaDriver& cuda() const { return cuda_; }
  [[nodiscard]] const NodeGroup& group() const { return group_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] const NodeMemory& memory() const { return *memory_; }
  [[nodiscard]] NodePage& page() const { return *page_; }
  // Returns this device's number for one of its experts. expert: the number in the node.
  [[nodiscard]] uint32_t OwnNumber(uint32_t expert) const {
    return expert - group_.rank * shape_.experts;
  }

 private:
  JoinedNode(const CudaDriver& cuda, const NodeGroup& group, const Shape& shape)
      : cuda_(cuda), group_(group), shape_(shape) {}
  [[nodiscard]] absl::Status MapAndTry(CopyQueue* out, CopyQueue* back, Time deadline);
  [[nodiscard]] absl::Status TryPaths(CopyQueue* out, CopyQueue* back, Time deadline);
  [[nodiscard]] absl::Status AwaitTrial(uint32_t rank, Time deadline);

  const CudaDriver& cuda_;
  const NodeGroup group_;
  const Shape shape_;
  std::unique_ptr<NodeMemory> memory_;
  std::unique_ptr<NodePage> page_;
};

}  // namespace rewire::moe
