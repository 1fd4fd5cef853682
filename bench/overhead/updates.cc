// Measures rewireUpdate() without a pending change, minus a plain call of the same function, in
// alternating batches. The tensors are registered and the agent is alive, as in a job that trains.
#include <chrono>
#include <optional>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "bench/overhead/member.h"
#include "bench/trainer/rewire_library.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/status_macros.h"

namespace rewire::bench {
namespace {

constexpr uint64_t kBatch = 500;
constexpr uint64_t kWarmUp = 2000;
constexpr uint64_t kElements = 4096;  // of each tensor
constexpr int kConstants = 8;
// The size of the trainer's volatile tensors: its progress and its running mean.
constexpr uint64_t kVolatileWords = 9;

int CountCall(void* calls) {
  ++*static_cast<uint64_t*>(calls);
  return 0;
}

class Updates {
 public:
  explicit Updates(const MemberOptions& options) : options_(options) {}

  absl::StatusOr<Samples> Run() {
    REWIRE_ASSIGN_OR_RETURN(library_, trainer::RewireLibrary::Load());
    REWIRE_RETURN_IF_ERROR(Check("rewireAttach", library_->Attach(nullptr, &context_)));
    // The tensors must outlive the attachment.
    const auto detach = absl::MakeCleanup([this] { library_->Detach(context_); });
    REWIRE_RETURN_IF_ERROR(Register());
    REWIRE_RETURN_IF_ERROR(Calls(kWarmUp));
    Samples samples;
    for (uint64_t done = 0; done < options_.updates; done += kBatch) {
      const Time begun = Now();
      for (uint64_t i = 0; i < kBatch; ++i) direct_(&calls_);
      const Time direct = Now();
      REWIRE_RETURN_IF_ERROR(Calls(kBatch));
      const Time through = Now();
      samples.update_ns.push_back(
          static_cast<double>(ToNanoseconds((through - direct) - (direct - begun))) /
          static_cast<double>(kBatch));
    }
    const uint64_t batches = (options_.updates + kBatch - 1) / kBatch;
    if (calls_ != kWarmUp + 2 * batches * kBatch) {
      return absl::InternalError("the update function was not called once per update");
    }
    return samples;
  }

 private:
  absl::Status Check(const char* call, rewireResult_t result) const {
    if (result == rewireSuccess) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(call, ": ", library_->LastError()));
  }

  absl::Status Register() {
    rewireParallel_t parallel{};
    parallel.size = sizeof parallel;
    rewireCallbacks_t callbacks{};
    callbacks.size = sizeof callbacks;
    REWIRE_RETURN_IF_ERROR(
        Check("rewireSetParallel", library_->SetParallel(context_, &parallel, &callbacks)));
    rewireTensor_t tensor{};
    tensor.size = sizeof tensor;
    tensor.layout = rewireReplicated;
    tensor.memory = rewireHost;
    if (options_.tensors == "none") return absl::OkStatus();
    for (int i = 0; i < kConstants; ++i) {
      const std::string name = absl::StrCat("constant", i);
      tensor.name = name.c_str();
      tensor.elements = kElements;
      tensor.element_bytes = sizeof(float);
      tensor.change = rewireConstant;
      tensor.data = constants_.emplace_back(kElements).data();
      REWIRE_RETURN_IF_ERROR(Check(tensor.name, library_->RegisterTensor(context_, &tensor)));
    }
    if (options_.tensors == "constant") return absl::OkStatus();
    tensor.name = "volatile";
    tensor.elements = kVolatileWords;
    tensor.element_bytes = sizeof(uint64_t);
    tensor.change = rewireVolatile;
    tensor.data = words_;
    return Check(tensor.name, library_->RegisterTensor(context_, &tensor));
  }

  absl::Status Calls(uint64_t count) {
    rewireOutcome_t outcome{};
    outcome.size = sizeof outcome;
    for (uint64_t i = 0; i < count; ++i) {
      const rewireResult_t result = library_->Update(context_, direct_, &calls_, &outcome);
      if (result != rewireSuccess) return Check("rewireUpdate", result);
    }
    return absl::OkStatus();
  }

  const MemberOptions options_;
  std::optional<trainer::RewireLibrary> library_;
  rewireContext_t context_ = nullptr;
  // The pointer is volatile, so that the compiler makes a real call in both ways.
  const rewireUpdateFn volatile direct_ = CountCall;
  uint64_t calls_ = 0;
  uint64_t words_[kVolatileWords] = {};
  std::vector<std::vector<float>> constants_;
};

}  // namespace

absl::StatusOr<Samples> MeasureUpdates(const MemberOptions& options) {
  return Updates(options).Run();
}

}  // namespace rewire::bench
