#include "reconfig/moe/exec/joined_node.h"

#include <algorithm>
#include <array>
#include <thread>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"

namespace rewire::moe {
namespace {

// Stages of NodePage::Meet.
constexpr uint32_t kMapped = 1;
constexpr uint32_t kTried = 2;
constexpr uint32_t kFinished = 3;
constexpr Duration kPoll = milliseconds(1);
constexpr size_t kTrialBytes = 64;

unsigned char TrialByte(uint32_t rank) { return static_cast<unsigned char>(0x51 + rank); }

}  // namespace

absl::StatusOr<std::unique_ptr<JoinedNode>> JoinedNode::Allocate(const CudaDriver& cuda,
                                                                 const NodeGroup& group,
                                                                 const Shape& shape) {
  std::unique_ptr<JoinedNode> node(new JoinedNode(cuda, group, shape));
  REWIRE_ASSIGN_OR_RETURN(node->memory_, NodeMemory::Allocate(cuda, shape));
  return node;
}

absl::Status JoinedNode::Join(CopyQueue* out, CopyQueue* back, Time deadline) {
  REWIRE_ASSIGN_OR_RETURN(page_, NodePage::Join(group_, shape_, memory_->handle(), deadline));
  absl::Status joined = MapAndTry(out, back, deadline);
  if (!joined.ok()) page_->Fail();
  return joined;
}

absl::Status JoinedNode::MapAndTry(CopyQueue* out, CopyQueue* back, Time deadline) {
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
    if (rank != group_.rank) REWIRE_RETURN_IF_ERROR(memory_->Open(rank, page_->memory(rank)));
  }
  REWIRE_RETURN_IF_ERROR(page_->Meet(kMapped, deadline));
  REWIRE_RETURN_IF_ERROR(TryPaths(out, back, deadline));
  return page_->Meet(kTried, deadline);
}

// Sends every other process a few bytes and a word, as in a round, and checks the received bytes.
absl::Status JoinedNode::TryPaths(CopyQueue* out, CopyQueue* back, Time deadline) {
  const NodeMemory::Side own = memory_->own();
  REWIRE_RETURN_IF_ERROR(
      ToStatus(cuda_, "cuMemsetD8Async",
               cuda_.MemsetD8Async(own.trial(group_.rank), TrialByte(group_.rank), kTrialBytes,
                                   out->stream())));
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
    if (rank == group_.rank) continue;
    const NodeMemory::Side peer = memory_->peer(rank);
    out->Add(peer.trial(group_.rank), own.trial(group_.rank), kTrialBytes);
    REWIRE_RETURN_IF_ERROR(out->Send());
    REWIRE_RETURN_IF_ERROR(out->Write(peer.used(group_.rank), 1));
  }
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
    if (rank != group_.rank) REWIRE_RETURN_IF_ERROR(AwaitTrial(rank, deadline));
  }
  // All words have arrived, so a stream that waits for one of the words continues at once.
  REWIRE_RETURN_IF_ERROR(back->AfterWord(own.used((group_.rank + 1) % group_.ranks), 1));
  while (true) {
    const CUresult passed = cuda_.StreamQuery(back->stream());
    if (passed != CUDA_ERROR_NOT_READY) return ToStatus(cuda_, "cuStreamQuery", passed);
    if (Now() >= deadline) {
      return absl::UnavailableError(
          "trial of cuStreamWaitValue64: the waiting stream did not see the value in time");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

absl::Status JoinedNode::AwaitTrial(uint32_t rank, Time deadline) {
  const NodeMemory::Side own = memory_->own();
  uint64_t word = 0;
  while (word == 0) {
    REWIRE_RETURN_IF_ERROR(
        ToStatus(cuda_, "cuMemcpyDtoH", cuda_.MemcpyDtoH(&word, own.used(rank), sizeof word)));
    if (word != 0) break;
    if (Now() >= deadline || page_->FindLost()) {
      return absl::UnavailableError(absl::StrCat("trial copy from rank ", rank,
                                                 ": not received in time, or the rank is lost"));
    }
    std::this_thread::sleep_for(kPoll);
  }
  std::array<unsigned char, kTrialBytes> bytes{};
  REWIRE_RETURN_IF_ERROR(ToStatus(cuda_, "cuMemcpyDtoH",
                                  cuda_.MemcpyDtoH(bytes.data(), own.trial(rank), kTrialBytes)));
  if (std::any_of(bytes.begin(), bytes.end(),
                  [rank](unsigned char b) { return b != TrialByte(rank); })) {
    return absl::DataLossError(absl::StrCat("trial copy from rank ", rank, ": wrong bytes"));
  }
  return absl::OkStatus();
}

void JoinedNode::Leave(Time deadline) { (void)page_->Meet(kFinished, deadline); }

}  // namespace rewire::moe
