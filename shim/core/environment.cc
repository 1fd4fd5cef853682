#include "shim/core/environment.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "shim/preload/real_nccl.h"

namespace rewire::shim {

NcclCalls NcclCalls::From(const RealNccl& real) {
  NcclCalls calls;
  calls.GetUniqueId = real.GetUniqueId;
  calls.CommInitRankConfig = real.CommInitRankConfig;
  calls.CommFinalize = real.CommFinalize;
  calls.CommDestroy = real.CommDestroy;
  calls.CommAbort = real.CommAbort;
  calls.CommGetAsyncError = real.CommGetAsyncError;
  calls.GetLastError = real.GetLastError;
  calls.GroupStart = real.GroupStart;
  calls.GroupEnd = real.GroupEnd;
  calls.AllReduce = real.AllReduce;
  calls.Broadcast = real.Broadcast;
  calls.Reduce = real.Reduce;
  calls.AllGather = real.AllGather;
  calls.ReduceScatter = real.ReduceScatter;
  calls.Send = real.Send;
  calls.Recv = real.Recv;
  // Functions newer than 2.19 are chosen by version: the table's own lookup is in the preloaded
  // library, which the core does not link.
  if (real.version >= 22203) calls.GroupSimulateEnd = real.GroupSimulateEnd;
  calls.abort_frees_at_group_end = real.AbortFreesAtGroupEnd();
  return calls;
}

std::string NcclCalls::Describe(ncclResult_t result) const {
  const char* const last = GetLastError == nullptr ? nullptr : GetLastError(nullptr);
  std::string text(absl::StripAsciiWhitespace(last == nullptr ? "" : last));
  std::replace(text.begin(), text.end(), '\n', ' ');
  return absl::StrCat("ncclResult=", static_cast<int>(result),
                      text.empty() ? "" : ", NCCL's last error: ", text);
}

}  // namespace rewire::shim
