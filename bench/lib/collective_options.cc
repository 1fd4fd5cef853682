#include "bench/lib/collective_options.h"

namespace rewire::bench {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 40;
constexpr int64_t kMaxIterations = 1'000'000'000;

}  // namespace

void CollectiveOptions::AddTo(Flags* flags) {
  flags->Size("-b,--minbytes", &min_bytes, 0, kMaxBytes, "smallest size");
  flags->Size("-e,--maxbytes", &max_bytes, 0, kMaxBytes, "largest size");
  flags->Size("-i,--stepbytes", &step_bytes, 1, kMaxBytes, "bytes from one size to the next");
  flags->Int("-f,--stepfactor", &step_factor, 2, 1 << 20, "factor from one size to the next");
  flags->Int("-n,--iters", &iterations, 1, kMaxIterations, "timed operations per size");
  flags->Int("-w,--warmup_iters", &warmup_iterations, 0, kMaxIterations,
             "operations before the timed ones");
  flags->Int("-c,--check", &check_iterations, 0, kMaxIterations, "checked operations per size");
  flags->Text("-d,--datatype", &type,
              {"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double",
               "bfloat16", "f8e4m3", "f8e5m2", "all"},
              "element type");
  flags->Text("-o,--op", &op, {"sum", "prod", "min", "max", "avg", "mulsum", "all"}, "reduction");
  flags->Int("-r,--root", &root, 0, 1 << 20, "root rank");
  flags->Int("-z,--blocking", &blocking, 0, 3, "wait for each operation");
  flags->Int("-a,--average", &average, 0, 3, "reported time: 0 rank 0, 1 mean, 2 min, 3 max");
  flags->Int("-T,--timeout", &timeout_seconds, 0, 86400,
             "seconds after which a size fails; 0: never");
  flags->Switch("-S,--report_timestamps", &timestamps, "print a timestamp on every line");
  flags->Switch("-M,--memory_report", &memory, "report memory");
  flags->Text("-J,--output_file", &json_file, {}, "write the JSON report to this file");
  flags->Switch("--json", &json, "print the JSON report on stdout, the text on stderr");
}

absl::Status CollectiveOptions::Check(const Flags& flags) const {
  if (flags.Given("-i") && flags.Given("-f")) {
    return absl::InvalidArgumentError("-i and -f exclude each other");
  }
  if (min_bytes > max_bytes) return absl::InvalidArgumentError("-b must be at most -e");
  if (flags.Given("-f") && min_bytes == 0 && max_bytes != 0) {
    return absl::InvalidArgumentError("-b=0: must be at least 1 with -f");
  }
  return absl::OkStatus();
}

std::vector<int64_t> CollectiveOptions::Sizes(int64_t element_bytes) const {
  std::vector<int64_t> sizes;
  for (int64_t size = min_bytes; size <= max_bytes;
       size = step_factor > 1 ? size * step_factor : size + step_bytes) {
    const int64_t rounded = size / element_bytes * element_bytes;
    if (sizes.empty() || sizes.back() != rounded) sizes.push_back(rounded);
    if (step_factor > 1 && size == 0) break;
  }
  return sizes;
}

}  // namespace rewire::bench
