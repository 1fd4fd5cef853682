#include "bench/overhead/member.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace rewire::bench {

int RunMember(const MemberOptions& options) {
  const absl::StatusOr<Samples> samples =
      options.task == "steps" ? MeasureSteps(options) : MeasureUpdates(options);
  const char* rank = std::getenv("RANK");
  const absl::Status status =
      samples.ok() ? samples->Write(absl::StrCat(options.out, rank != nullptr ? rank : "0"))
                   : samples.status();
  if (status.ok()) return 0;
  fprintf(stderr, "overhead_perf: member: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace rewire::bench
