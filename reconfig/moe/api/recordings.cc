// Implements the C interface of recordings of a router's counts. Uses files and no context. See
// rewire/rewire_moe.h for threads.
#include <algorithm>
#include <memory>

#include "reconfig/api/arguments.h"
#include "reconfig/base/cancellation.h"
#include "reconfig/moe/plan/recording.h"
#include "rewire/rewire_moe.h"

struct rewireCounts {
  rewire::moe::RecordedShape shape;
  rewire::moe::CountWriter writer;
};

using rewire::Arguments;
using rewire::Fail;

extern "C" {

rewireResult_t rewireCountsCreate(const char* path, uint32_t nodes, uint32_t devices_of_node,
                                  uint32_t experts, rewireCounts_t* counts) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong =
          Arguments("rewireCountsCreate").NotNull("path", path).NotNull("counts", counts).result();
      wrong != rewireSuccess) {
    return wrong;
  }
  const rewire::moe::RecordedShape shape{{nodes, devices_of_node}, experts};
  absl::StatusOr<rewire::moe::CountWriter> writer = rewire::moe::CountWriter::Create(path, shape);
  if (!writer.ok()) return Fail(writer.status());
  *counts = new rewireCounts{shape, *std::move(writer)};
  return rewireSuccess;
}

rewireResult_t rewireCountsAdd(rewireCounts_t counts, uint64_t micro_batch, uint32_t layer,
                               const uint32_t* tokens) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong =
          Arguments("rewireCountsAdd").NotNull("counts", counts).NotNull("tokens", tokens).result();
      wrong != rewireSuccess) {
    return wrong;
  }
  rewire::moe::Recorded recorded{
      micro_batch, layer,
      rewire::moe::Counts(counts->shape.topology.devices(), counts->shape.experts)};
  std::copy_n(tokens, recorded.counts.tokens().size(), recorded.counts.tokens().begin());
  const absl::Status status = counts->writer.Add(recorded);
  return status.ok() ? rewireSuccess : Fail(status);
}

rewireResult_t rewireCountsClose(rewireCounts_t counts) noexcept {
  const rewire::PostponedCancellation postponed;
  if (const rewireResult_t wrong =
          Arguments("rewireCountsClose").NotNull("counts", counts).result();
      wrong != rewireSuccess) {
    return wrong;
  }
  delete counts;
  return rewireSuccess;
}

}  // extern "C"
