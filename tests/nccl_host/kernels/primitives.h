// The steps of collectives: receive from some peers, combine with this rank's data, keep and send,
// over one of three protocols (src/device/primitives.h and prims_*.h of NCCL). Owned by the thread
// of one block.
#pragma once

#include <vector>

#include "tests/nccl_host/kernels/channel.h"
#include "tests/nccl_host/kernels/connection_end.h"
#include "tests/nccl_host/kernels/elements.h"

namespace nccl_host {

class Primitives {
 public:
  struct Shape {
    Protocol protocol = kSimple;
    // Slots of a chunk and of a slice of the chunk; both 1 for LL and LL128.
    int chunk_steps = 1, slice_steps = 1;
    std::vector<int> from, to;  // peers; negative ones are skipped
  };
  Primitives(const Communicator& communicator, const Channel& channel, Progress* progress,
             const Elements& elements, const Shape& shape, char* input, char* output);
  ~Primitives();
  Primitives(const Primitives&) = delete;
  Primitives& operator=(const Primitives&) = delete;

  void SetData(char* input, char* output) {
    input_ = input;
    output_ = output;
  }

  // Offsets and counts are in elements.
  void Send(int64_t at, int64_t count) { Run({false, true, input_, nullptr, at, at, true}, count); }
  void SendOutput(int64_t at, int64_t count) {
    Run({false, true, output_, nullptr, at, at}, count);
  }
  void CopySend(int64_t from, int64_t to, int64_t count) {
    Run({false, true, input_, output_, from, to, true}, count);
  }
  void Receive(int64_t at, int64_t count) { Run({true, false, nullptr, output_, at, at}, count); }
  void ReceiveCopySend(int64_t at, int64_t count) {
    Run({true, true, nullptr, output_, at, at}, count);
  }
  void ReceiveReduceSend(int64_t at, int64_t count) {
    Run({true, true, input_, nullptr, at, at, true}, count);
  }
  void ReceiveReduceCopy(int64_t from, int64_t to, int64_t count) {
    Run({true, false, input_, output_, from, to, true, true}, count);
  }
  void ReceiveReduceCopySend(int64_t from, int64_t to, int64_t count) {
    Run({true, true, input_, output_, from, to, true, true}, count);
  }

 private:
  struct Step {
    bool receive, send;
    const char* source;  // this rank's data, or null
    char* target;        // address of the result, or null
    int64_t from, to;
    bool input = false;  // `source` is the rank's input: the operator may prepare it
    bool last = false;   // the result contains all ranks
  };
  void Run(Step step, int64_t count);
  void RunSimple(const Step& step, int64_t count);
  void RunLL(const Step& step, int64_t count);
  void RunLL128(const Step& step, int64_t count);
  // Combines this rank's data and the received data into each target.
  void Move(const Step& step, const std::vector<const char*>& sources,
            const std::vector<char*>& targets, int64_t count);
  void WaitForFreeSlots(uint64_t steps);
  [[nodiscard]] size_t Bytes(int64_t count) const {
    return static_cast<size_t>(count) * elements_.bytes();
  }

  Progress* const progress_;
  const Elements& elements_;
  const Protocol protocol_;
  const int slices_, slice_steps_;
  const int64_t simple_slot_, ll_slot_, ll128_slot_;  // bytes
  char* input_ = nullptr;
  char* output_ = nullptr;
  std::vector<ConnectionEnd> from_, to_;
  std::vector<char> combined_;
};

}  // namespace nccl_host
