#include "bench/lib/table.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rewire::bench {
namespace {

std::string Columns(const Measured& measured) {
  std::string wrong = measured.wrong.has_value() ? absl::StrCat(*measured.wrong) : "N/A";
  return absl::StrFormat("  %s  %s  %s  %6s", FitNumber(measured.time_us, 7, 2),
                         FitNumber(measured.algbw, 6, 2), FitNumber(measured.busbw, 6, 2), wrong);
}

}  // namespace

std::string FitNumber(double value, int width, int decimals) {
  for (int digits = decimals; digits >= 0; --digits) {
    std::string text = absl::StrFormat("%*.*f", width, digits, value);
    if (text.size() <= static_cast<size_t>(width)) return text;
  }
  for (int digits = decimals; digits >= 0; --digits) {
    std::string text = absl::StrFormat("%*.*e", width, digits, value);
    if (text.size() <= static_cast<size_t>(width)) return text;
  }
  return absl::StrFormat("%.0e", value);  // a row that is too wide is better than a wrong number
}

std::string TableStart(std::string_view program, std::string_view configuration,
                       const std::vector<std::string>& devices) {
  std::string text = absl::StrFormat("# Collective test starting: %s\n# %s\n#\n# Using devices\n",
                                     std::string(program), std::string(configuration));
  for (const std::string& device : devices) absl::StrAppend(&text, "#  ", device, "\n");
  return text + "#\n";
}

std::string TableHeader() {
  return absl::StrFormat("# %10s  %12s  %8s  %6s  %6s  %31s  %31s\n", "", "", "", "", "",
                         "out-of-place          ", "in-place          ") +
         absl::StrFormat("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n",
                         "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
                         "#wrong", "time", "algbw", "busbw", "#wrong") +
         absl::StrFormat("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n",
                         "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
                         "(GB/s)", "(GB/s)", "");
}

std::string TableRow(const Row& row) {
  return absl::StrFormat("%12d  %12d  %8s  %6s  %6d", row.size, row.count, row.type, row.op,
                         row.root) +
         Columns(row.out_of_place) + Columns(row.in_place) + "\n";
}

std::string TableEnd(std::string_view program, int64_t out_of_bounds, double average_busbw) {
  return absl::StrFormat(
      "# Out of bounds values : %d %s\n# Avg bus bandwidth    : %g\n#\n"
      "# Collective test concluded: %s\n",
      out_of_bounds, out_of_bounds == 0 ? "OK" : "FAILED", average_busbw, std::string(program));
}

Measured Bandwidth(Collective collective, int64_t bytes, int ranks, double time_us) {
  double factor = 1;
  switch (collective) {
    case Collective::kAllReduce:
      factor = 2.0 * (ranks - 1) / ranks;
      break;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      factor = static_cast<double>(ranks - 1) / ranks;
      break;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSendRecv:
      break;
  }
  Measured measured;
  measured.time_us = time_us;
  measured.algbw = static_cast<double>(bytes) / (time_us * 1e3);
  measured.busbw = measured.algbw * factor;
  return measured;
}

}  // namespace rewire::bench
