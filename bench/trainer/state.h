// The complete training state: weights, optimizer state, ballast and gradients on the device, the
// progress and the volatile buffer on the host. Owned by the training thread; Rewire's thread calls
// NewPart and ReachPart.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/trainer/args.h"
#include "bench/trainer/communicator.h"
#include "bench/trainer/device.h"
#include "bench/trainer/model.h"
#include "bench/trainer/part_memory.h"

namespace rewire::trainer {

inline constexpr int kMaxSlots = 1024;

// Equal on all members at an update boundary; a joiner reads the earlier history from it.
struct Progress {
  uint64_t step = 0;  // updates applied: the number of the next step
  int64_t loss_sum = 0;
  int64_t activation_sum = 0;
  int64_t nonfinite = 0;  // samples of this step whose gradient was not finite
  int64_t stop = 0;       // members that were asked to stop after this step
};
inline constexpr size_t kProgressWords = sizeof(Progress) / 8;

// The volatile buffer: a running mean of activations. The mean after step s lies at s % 4, so that
// a repeated step finds its initial value.
using RunningMean = std::array<double, 4>;

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  [[nodiscard]] uint64_t size() const { return end - begin; }
};

struct StateTensor {
  uint64_t elements = 0;  // of the whole
  size_t element_bytes = 0;
  bool sharded = false;
  bool transient = false;
  size_t capacity = 0;  // bytes of every part; 0: what the part needs
  // Sharded constant state has memory that grows and shrinks in place, if the device supports it.
  std::unique_ptr<PartMemory> memory;
  DeviceBuffer buffer;   // otherwise
  CUdeviceptr data = 0;  // this member's part
  [[nodiscard]] CUdeviceptr at(size_t byte = 0) const { return data + byte; }
  [[nodiscard]] void* pointer() const { return reinterpret_cast<void*>(data); }
};

class TrainingState {
 public:
  static absl::StatusOr<std::unique_ptr<TrainingState>> Create(const Args& args,
                                                               const Device& device,
                                                               const Model<float>& model, int slots,
                                                               int slot);

  // Returns this member's part of a tensor of `elements` elements that ZeRO shards.
  [[nodiscard]] Range Part(uint64_t elements) const;
  // Elements per slot in a reduce-scatter or all-gather: the padded part.
  [[nodiscard]] uint64_t Chunk() const { return (elements() + slots - 1) / slots; }
  [[nodiscard]] uint64_t elements() const { return layout_.elements(); }
  [[nodiscard]] bool exact() const { return exact_; }
  [[nodiscard]] bool zero1() const { return zero1_; }

  // Sets the initial state, which is equal on every member.
  absl::Status Initialise(Communicator& comm, uint64_t seed);
  // Makes bf16 weights from `masters` (this member's part), gathers all and refreshes the host's.
  absl::Status PublishWeights(Communicator& comm, const float* masters);
  absl::Status PublishLoadedWeights(Communicator& comm);
  // Refreshes the host's weights from the device's.
  absl::Status RefreshWeights();
  // Returns the sum over all members of every element's hash: the same in every world.
  absl::StatusOr<uint64_t> Hash(Communicator& comm);

  // Provide memory for another part of a tensor: ReachPart in place, for elements [begin, end);
  // NewPart elsewhere. Thread-safe.
  [[nodiscard]] bool ReachPart(const std::string& tensor, Range elements);
  [[nodiscard]] void* NewPart(const std::string& tensor, uint64_t bytes) const;
  void FreePart(const std::string& tensor, void* part);
  // Makes the part current. The old memory is freed later, not while the job is paused.
  void AdoptPart(const std::string& tensor, void* part, Range elements);
  ~TrainingState();

  int slots = 1;
  int slot = 0;
  Progress progress;
  RunningMean running{};
  // "master", "first", "second", "ballast", "gradient"; and the weights, which every member holds
  // whole.
  std::map<std::string, StateTensor> tensors;
  DeviceBuffer weights;        // bf16, room for padding
  DeviceBuffer full_gradient;  // the unreduced gradient, room for padding
  DeviceBuffer small;          // eight 64-bit words for small reductions
  AlignedVector<float> host_weights;
  std::vector<uint8_t> decays;
  PinnedArray<int64_t> small_host;
  PinnedArray<int64_t> gradient_host;  // fixed point; floats in its first half when not exact
  PinnedArray<float> master_host, first_host, second_host;

  [[nodiscard]] const Device& device() const { return device_; }
  // Called at the end of every step: frees the parts that were already old at the end of the
  // previous step. No member then frees memory while another still enters the new world.
  void FreeOldParts();
  // Adds the first `count` words of small_host over all members.
  absl::Status ReduceSmall(Communicator& comm, size_t count);

 private:
  TrainingState(const Args& args, const Device& device, const ParameterLayout& layout)
      : device_(device), layout_(layout), exact_(args.exact), zero1_(args.zero == 1) {}
  absl::Status Allocate(uint64_t ballast_elements);
  absl::Status HashPart(const StateTensor& tensor, uint64_t salt, uint64_t* sum) const;

  const Device& device_;
  const ParameterLayout& layout_;
  bool exact_;
  bool zero1_;
  PinnedArray<uint16_t> weight_bits_;
  // The remains of a change: buffers to free, memory to trim.
  struct OldParts {
    std::vector<DeviceBuffer> buffers;
    std::vector<PartMemory*> reduced;
  };
  OldParts old_parts_;      // of this step's change
  OldParts retired_parts_;  // of the previous step's change
  std::thread freeing_;     // old parts, one change at a time
};

}  // namespace rewire::trainer
